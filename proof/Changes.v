(* What the operations of System.v change: lanes by the operations of their kernel, logs by events
   that are not steps, sessions in any way, and nothing else. So every lane of every state is
   placed and conserved ([Lane.Good]), and a step of a lane logs one step.

   [kept w0 w]: from [w0] to [w] only such changes were made. There is a lemma per operation. *)

From Coq Require Import ZArith List Arith Lia Bool.
From Wavelock Require Import Groups Lane System.
From Wavelock Require Interleave Acceptance.
From Wavelock Require Lanes Fair.
Import ListNotations.
Local Open Scope Z_scope.

(* Step events have codes from 128 on. *)
Definition is_step (e : event) : bool := 128 <=? hd 0 e.
Definition steps_in (l : list event) : nat := length (filter is_step l).
Definition steps_at (w : world) (i : nat) : nat := steps_in (l_log (nth i (w_lanes w) no_lane)).

Definition all_good (w : world) : Prop := Forall (fun l => Good (l_kernel l)) (w_lanes w).

Record kept (w0 w : world) : Prop := Kept {
  kept_lanes : length (w_lanes w) = length (w_lanes w0);
  kept_sessions : length (w_sessions w) = length (w_sessions w0);
  kept_out : w_out w = w_out w0;
  kept_good : all_good w0 -> all_good w;
  kept_steps : forall i, steps_at w i = steps_at w0 i }.

Lemma kept_refl w : kept w w.
Proof. constructor; auto. Qed.

Lemma kept_trans a b c : kept a b -> kept b c -> kept a c.
Proof. intros [] []. constructor; auto; congruence. Qed.

Lemma kept_of_pair {A} w0 (p : A * world) a w : p = (a, w) -> kept w0 (snd p) -> kept w0 w.
Proof. intros ->. auto. Qed.

Lemma set_nth_length {A} (x : A) : forall n l, length (Lanes.set_nth n x l) = length l.
Proof. induction n; intros [|y l]; cbn; auto. Qed.

Lemma forall_set_nth {A} (P : A -> Prop) (x : A) : forall n l,
  Forall P l -> ((n < length l)%nat -> P x) -> Forall P (Lanes.set_nth n x l).
Proof.
  induction n; intros [|y l] H Hx; cbn in *; auto; inversion H; subst; constructor; auto.
  - apply Hx. lia.
  - apply IHn; auto. intros. apply Hx. lia.
Qed.

Lemma nth_set_nth {A} (x d : A) : forall n l i,
  nth i (Lanes.set_nth n x l) d = if (i =? n)%nat && (n <? length l)%nat then x else nth i l d.
Proof.
  induction n; intros [|y l] [|i]; cbn [Lanes.set_nth nth length Nat.eqb andb];
    rewrite ?andb_false_r; auto. apply IHn.
Qed.

(* A lane gets a state that its log and its kernel allow. *)
Lemma kept_on_lane w0 w i f : kept w0 w ->
  (all_good w -> Good (l_kernel (at_lane w i)) -> Good (l_kernel (f (at_lane w i)))) ->
  steps_in (l_log (f (at_lane w i))) = steps_in (l_log (at_lane w i)) ->
  kept w0 (on_lane i f w).
Proof.
  intros K G S. apply (kept_trans _ _ _ K). unfold on_lane. constructor; cbn; auto.
  - apply set_nth_length.
  - unfold all_good. cbn. intros H. apply forall_set_nth; auto. intros Hi. apply G; auto.
    unfold at_lane. rewrite Forall_nth in H. apply H. auto.
  - intros k. unfold steps_at. cbn. rewrite nth_set_nth.
    destruct (Nat.eqb_spec k (Z.to_nat i)); cbn [andb]; auto. subst k.
    match goal with |- context [if ?b then _ else _] => destruct b end; auto.
Qed.

Lemma kept_on_session w0 w s f : kept w0 w -> kept w0 (on_session s f w).
Proof.
  intros K. apply (kept_trans _ _ _ K). constructor; cbn; auto. apply set_nth_length.
Qed.

Lemma kept_with_sessions w0 w ss : kept w0 w -> length ss = length (w_sessions w) ->
  kept w0 (with_sessions ss w).
Proof. intros K H. apply (kept_trans _ _ _ K). constructor; cbn; auto. Qed.

Lemma good_at w i : all_good w -> Good (l_kernel (at_lane w i)).
Proof.
  intros H. unfold at_lane. destruct (Nat.lt_ge_cases (Z.to_nat i) (length (w_lanes w))) as [Hi|Hi].
  - unfold all_good in H. rewrite Forall_nth in H. apply H. auto.
  - rewrite nth_overflow; auto. apply good_new.
Qed.

Lemma kept_fold {A} (f : world -> A -> world) l : forall w0 w,
  (forall w a, kept w0 w -> kept w0 (f w a)) -> kept w0 w -> kept w0 (fold_left f l w).
Proof. induction l; intros w0 w H K; cbn; auto. Qed.

Lemma kept_log w0 w i e : kept w0 w -> is_step e = false -> kept w0 (log i e w).
Proof.
  intros K H. apply kept_on_lane; auto.
  cbn. unfold steps_in. cbn. rewrite H. auto.
Qed.

(* Operations of the kernel under which a lane stays good. *)
Definition good_op (f : lane -> lane) : Prop := forall l, Good l -> Good (f l).

Lemma kept_on_kernel w0 w i f : kept w0 w -> good_op f -> kept w0 (on_lane i (on_kernel f) w).
Proof. intros K H. apply kept_on_lane; auto. intros _ G. apply H. exact G. Qed.

Create HintDb kept.
#[export] Hint Resolve kept_refl kept_on_session kept_fold : kept.
#[export] Hint Resolve good_wake good_prefer good_cancel good_reap good_spawn good_stop good_book
  good_align good_receive_session good_receive good_begin_wave good_begin_frame good_depart : kept.

Lemma kept_let w0 (e : world) (b : world -> world) :
  kept w0 e -> (forall x, kept w0 x -> kept w0 (b x)) -> kept w0 (let x := e in b x).
Proof. intros; cbv zeta; auto. Qed.

Lemma kept_let_of {A} w0 (e : A) (b : A -> world) :
  (forall x, kept w0 (b x)) -> kept w0 (let x := e in b x).
Proof. intros; cbv zeta; auto. Qed.

Lemma kept_let_snd {A} w0 (e : world) (b : world -> A * world) :
  kept w0 e -> (forall x, kept w0 x -> kept w0 (snd (b x))) -> kept w0 (snd (let x := e in b x)).
Proof. intros; cbv zeta; auto. Qed.

Lemma kept_let_of_snd {A B} w0 (e : A) (b : A -> B * world) :
  (forall x, kept w0 (snd (b x))) -> kept w0 (snd (let x := e in b x)).
Proof. intros; cbv zeta; auto. Qed.

(* Cases, with the names of intermediate states kept ([destruct] would replace them). *)
Lemma kept_bool w0 (b : bool) x y :
  (b = true -> kept w0 x) -> (b = false -> kept w0 y) -> kept w0 (if b then x else y).
Proof. destruct b; auto. Qed.

Lemma kept_bool_snd {A} w0 (b : bool) (x y : A * world) :
  (b = true -> kept w0 (snd x)) -> (b = false -> kept w0 (snd y)) ->
  kept w0 (snd (if b then x else y)).
Proof. destruct b; auto. Qed.

Lemma kept_option {A} w0 (o : option A) (f : A -> world) y :
  (forall a, o = Some a -> kept w0 (f a)) -> (o = None -> kept w0 y) ->
  kept w0 (match o with Some a => f a | None => y end).
Proof. destruct o; auto. Qed.

Lemma kept_option_snd {A B} w0 (o : option A) (f : A -> B * world) y :
  (forall a, o = Some a -> kept w0 (snd (f a))) -> (o = None -> kept w0 (snd y)) ->
  kept w0 (snd (match o with Some a => f a | None => y end)).
Proof. destruct o; auto. Qed.

Lemma kept_list {A} w0 (l : list A) (f : A -> list A -> world) y :
  (forall a r, l = a :: r -> kept w0 (f a r)) -> (l = [] -> kept w0 y) ->
  kept w0 (match l with a :: r => f a r | [] => y end).
Proof. destruct l; auto. Qed.

Lemma kept_list_snd {A B} w0 (l : list A) (f : A -> list A -> B * world) y :
  (forall a r, l = a :: r -> kept w0 (snd (f a r))) -> (l = [] -> kept w0 (snd y)) ->
  kept w0 (snd (match l with a :: r => f a r | [] => y end)).
Proof. destruct l; auto. Qed.

Lemma kept_pair {A B} w0 (p : A * B) (f : A -> B -> world) :
  (forall a b, p = (a, b) -> kept w0 (f a b)) -> kept w0 (let '(a, b) := p in f a b).
Proof. destruct p; auto. Qed.

Lemma kept_pair_snd {A B C} w0 (p : A * B) (f : A -> B -> C * world) :
  (forall a b, p = (a, b) -> kept w0 (snd (f a b))) -> kept w0 (snd (let '(a, b) := p in f a b)).
Proof. destruct p; auto. Qed.

Ltac kept_cases :=
  match goal with
  | |- kept ?w0 (if ?b then ?x else ?y) => refine (kept_bool w0 b x y _ _); intro
  | |- kept ?w0 (snd (if ?b then ?x else ?y)) => refine (kept_bool_snd w0 b x y _ _); intro
  | |- kept ?w0 (match ?o with Some a => @?f a | None => ?y end) =>
      refine (kept_option w0 o f y _ _); [intro; intro|intro]
  | |- kept ?w0 (snd (match ?o with Some a => @?f a | None => ?y end)) =>
      refine (kept_option_snd w0 o f y _ _); [intro; intro|intro]
  | |- kept ?w0 (match ?l with a :: r => @?f a r | [] => ?y end) =>
      refine (kept_list w0 l f y _ _); [intro; intro; intro|intro]
  | |- kept ?w0 (snd (match ?l with a :: r => @?f a r | [] => ?y end)) =>
      refine (kept_list_snd w0 l f y _ _); [intro; intro; intro|intro]
  | |- kept ?w0 (let '(a, b) := ?p in @?f a b) => refine (kept_pair w0 p f _); intro; intro; intro
  | |- kept ?w0 (snd (let '(a, b) := ?p in @?f a b)) => refine (kept_pair_snd w0 p f _); intro;
      intro; intro
  | |- kept _ (match ?x with _ => _ end) => destruct x eqn:?
  | |- kept _ (snd (match ?x with _ => _ end)) => destruct x eqn:?
  end.

#[export] Hint Extern 2 (kept _ ?w) =>
  match goal with H : _ = (_, w) |- _ => apply (kept_of_pair _ _ _ _ H); clear H end : kept.
#[export] Hint Extern 2 (kept _ (snd (_, _))) => cbn [snd] : kept.
#[export] Hint Extern 3 (kept _ (log _ _ _)) => apply kept_log; [|reflexivity] : kept.
#[export] Hint Extern 3 (kept _ (on_lane _ (on_kernel _) _)) =>
  apply kept_on_kernel; [|intros ? ?; auto with kept] : kept.
#[export] Hint Extern 4 (kept _ (match _ with _ => _ end)) => kept_cases : kept.
#[export] Hint Extern 4 (kept _ (snd (match _ with _ => _ end))) => kept_cases : kept.

Ltac kept :=
  repeat match goal with
  | K : kept ?a ?b |- kept ?a ?b => exact K
  | |- kept ?a ?a => apply kept_refl
  | H : ?f = (?a, ?w) |- kept ?w0 ?w => apply (kept_of_pair _ _ _ _ H); clear H
  | |- kept ?w0 (let x := ?e in @?b x) =>
      lazymatch type of e with
      | world => refine (kept_let w0 e b _ _); [|intro; intro]
      | _ -> _ => change (kept w0 (b e)); cbv beta
      | _ => refine (kept_let_of w0 e b _); intro
      end
  | |- kept ?w0 (snd (let x := ?e in @?b x)) =>
      lazymatch type of e with
      | world => refine (kept_let_snd w0 e b _ _); [|intro; intro]
      | _ -> _ => change (kept w0 (snd (b e))); cbv beta
      | _ => refine (kept_let_of_snd w0 e b _); intro
      end
  | |- kept _ (snd (_, _)) => cbn [snd]
  | |- _ => kept_cases
  | |- kept _ (log _ _ _) => apply kept_log; [|reflexivity]
  | |- kept _ (on_lane _ (on_kernel _) _) => apply kept_on_kernel; [|intros ? ?; auto with kept]
  | |- kept _ (on_session _ _ _) => apply kept_on_session
  | |- kept _ (fold_left _ _ _) => apply kept_fold; [intros ? ? ?|]
  | |- _ => progress (cbv beta)
  end; auto 12 with kept.

(* [unfold] would replace names of intermediate states. *)
Tactic Notation "opened" reference(f) := cbv delta [f]; cbv beta; kept.

Lemma kept_post w0 w i to e : kept w0 w -> kept w0 (post i to e w).
Proof. intros K. apply kept_on_lane; auto. Qed.
#[export] Hint Resolve kept_post : kept.

Lemma kept_on_channel w0 w c f : kept w0 w -> kept w0 (on_channel c f w).
Proof. intros K. apply kept_on_session. auto. Qed.
#[export] Hint Resolve kept_on_channel : kept.

Lemma kept_touch w0 w c : kept w0 w -> kept w0 (touch c w).
Proof. intros K. apply kept_on_channel. auto. Qed.
#[export] Hint Resolve kept_touch : kept.

Lemma kept_wake_here w0 w i s slot r src : kept w0 w -> kept w0 (wake_here i s slot r src w).
Proof. intros K. opened wake_here. Qed.
#[export] Hint Resolve kept_wake_here : kept.

Lemma kept_answer w0 w i s slot a src : kept w0 w -> kept w0 (answer i s slot a src w).
Proof. intros K. opened answer. Qed.
#[export] Hint Resolve kept_answer : kept.

Lemma kept_hand_over w0 w i s slot : kept w0 w -> kept w0 (hand_over i s slot w).
Proof. intros K. opened hand_over. Qed.
#[export] Hint Resolve kept_hand_over : kept.

Lemma kept_leave_selectors w0 w s on : kept w0 w -> kept w0 (leave_selectors s on w).
Proof. intros K. opened leave_selectors. Qed.
#[export] Hint Resolve kept_leave_selectors : kept.

Lemma kept_wake_selectors fuel : forall w0 w i c, kept w0 w -> kept w0 (wake_selectors fuel i c w).
Proof. induction fuel; intros w0 w i c K; cbn [wake_selectors]; kept. Qed.
#[export] Hint Resolve kept_wake_selectors : kept.

Lemma kept_serve_receivers fuel : forall w0 w i c, kept w0 w -> kept w0 (serve_receivers fuel i c
    w).
Proof. induction fuel; intros w0 w i c K; cbn [serve_receivers]; kept. Qed.
#[export] Hint Resolve kept_serve_receivers : kept.

Lemma kept_deliver w0 w i c m : kept w0 w -> kept w0 (deliver i c m w).
Proof. intros K. opened deliver. Qed.
#[export] Hint Resolve kept_deliver : kept.

Lemma kept_admit_senders fuel : forall w0 w i c, kept w0 w -> kept w0 (admit_senders fuel i c w).
Proof. induction fuel; intros w0 w i c K; cbn [admit_senders]; kept. Qed.
#[export] Hint Resolve kept_admit_senders : kept.

Lemma kept_refuse_receivers fuel : forall w0 w i c, kept w0 w ->
  kept w0 (refuse_receivers fuel i c w).
Proof. induction fuel; intros w0 w i c K; cbn [refuse_receivers]; kept. Qed.
#[export] Hint Resolve kept_refuse_receivers : kept.

Lemma kept_close_channel w0 w i c : kept w0 w -> kept w0 (close_channel i c w).
Proof.
  intros K. opened close_channel.
Qed.
#[export] Hint Resolve kept_close_channel : kept.

Lemma kept_sender_left w0 w i c : kept w0 w -> kept w0 (sender_left i c w).
Proof. intros K. opened sender_left. Qed.
#[export] Hint Resolve kept_sender_left : kept.

Lemma kept_close_port w0 w i s p : kept w0 w -> kept w0 (close_port i s p w).
Proof. intros K. opened close_port. Qed.
#[export] Hint Resolve kept_close_port : kept.

Lemma kept_end_session_ w0 w i s : kept w0 w -> kept w0 (end_session_ i s w).
Proof. intros K. opened end_session_. Qed.
#[export] Hint Resolve kept_end_session_ : kept.

Lemma kept_end_task w0 w i s slot st v : kept w0 w -> kept w0 (end_task i s slot st v w).
Proof. intros K. opened end_task. Qed.
#[export] Hint Resolve kept_end_task : kept.

Lemma kept_leave_queues w0 w i s slot : kept w0 w -> kept w0 (leave_queues i s slot w).
Proof. intros K. opened leave_queues. Qed.
#[export] Hint Resolve kept_leave_queues : kept.

Lemma kept_cancel_task w0 w i s slot : kept w0 w -> kept w0 (cancel_task i s slot w).
Proof. intros K. opened cancel_task. Qed.
#[export] Hint Resolve kept_cancel_task : kept.

Lemma kept_block_on w0 w i s slot x r a b : kept w0 w -> kept w0 (snd (block_on i s slot x r a b
    w)).
Proof. intros K. opened block_on. Qed.
#[export] Hint Resolve kept_block_on : kept.

Lemma kept_take_credit w0 w i c : kept w0 w -> kept w0 (snd (take_credit i c w)).
Proof. intros K. opened take_credit. apply kept_on_lane; auto. Qed.
#[export] Hint Resolve kept_take_credit : kept.

Lemma kept_send_op w0 w i s slot h m b : kept w0 w -> kept w0 (snd (send_op i s slot h m b w)).
Proof. intros K. opened send_op. Qed.
#[export] Hint Resolve kept_send_op : kept.

Lemma kept_recv_op w0 w i s slot h to b : kept w0 w -> kept w0 (snd (recv_op i s slot h to b w)).
Proof. intros K. opened recv_op. Qed.
#[export] Hint Resolve kept_recv_op : kept.

Lemma kept_pay w0 w i s slot began c : kept w0 w -> kept w0 (snd (pay i s slot began c w)).
Proof. intros K. opened pay. Qed.
#[export] Hint Resolve kept_pay : kept.

Lemma kept_push_selectors ks : forall w0 w s slot, kept w0 w ->
  kept w0 (snd (push_selectors s slot ks w)).
Proof. induction ks; intros w0 w s slot K; cbn [push_selectors]; kept. Qed.
#[export] Hint Resolve kept_push_selectors : kept.

Lemma kept_select_op w0 w i s slot began hs : kept w0 w ->
  kept w0 (snd (select_op i s slot began hs w)).
Proof. intros K. opened select_op. Qed.
#[export] Hint Resolve kept_select_op : kept.

Lemma kept_publish w0 w i s slot : kept w0 w -> kept w0 (snd (publish i s slot w)).
Proof. intros K. opened publish. apply kept_on_lane; auto. intros _ G. apply good_spawn. exact G.
    Qed.
#[export] Hint Resolve kept_publish : kept.

Lemma kept_spawn_op w0 w i s e on : kept w0 w -> kept w0 (snd (spawn_op i s e on w)).
Proof. intros K. opened spawn_op. Qed.
#[export] Hint Resolve kept_spawn_op : kept.

Lemma kept_join_op w0 w i s slot v to : kept w0 w -> kept w0 (snd (join_op i s slot v to w)).
Proof. intros K. opened join_op. Qed.
#[export] Hint Resolve kept_join_op : kept.

Lemma kept_cancel_op w0 w i s slot v : kept w0 w -> kept w0 (snd (cancel_op i s slot v w)).
Proof. intros K. opened cancel_op. Qed.
#[export] Hint Resolve kept_cancel_op : kept.

Lemma kept_detach_op w0 w s v : kept w0 w -> kept w0 (snd (detach_op s v w)).
Proof. intros K. opened detach_op. Qed.
#[export] Hint Resolve kept_detach_op : kept.

Lemma kept_close_op w0 w i s h : kept w0 w -> kept w0 (snd (close_op i s h w)).
Proof. intros K. opened close_op. Qed.
#[export] Hint Resolve kept_close_op : kept.

Lemma kept_make_op w0 w i s c : kept w0 w -> kept w0 (snd (make_op i s c w)).
Proof. intros K. opened make_op. Qed.
#[export] Hint Resolve kept_make_op : kept.

Lemma kept_input_op w0 w i s slot began r : kept w0 w -> kept w0 (snd (input_op i s slot began r
    w)).
Proof. intros K. opened input_op. Qed.
#[export] Hint Resolve kept_input_op : kept.

Lemma kept_output_op w0 w i s slot began c : kept w0 w ->
  kept w0 (snd (output_op i s slot began c w)).
Proof. intros K. opened output_op. Qed.
#[export] Hint Resolve kept_output_op : kept.

Lemma kept_perform w0 w i s slot began o vs : kept w0 w ->
  kept w0 (snd (perform i s slot began o vs w)).
Proof. intros K. opened perform. Qed.
#[export] Hint Resolve kept_perform : kept.

Lemma kept_resume_with w0 w s slot r : kept w0 w -> kept w0 (resume_with s slot r w).
Proof. intros K. opened resume_with. Qed.
#[export] Hint Resolve kept_resume_with : kept.

Lemma kept_host_operation w0 w i s slot began o : kept w0 w ->
  kept w0 (snd (host_operation i s slot began o w)).
Proof. intros K. opened host_operation. Qed.
#[export] Hint Resolve kept_host_operation : kept.

Lemma kept_finish_wait w0 w s slot : kept w0 w -> kept w0 (finish_wait s slot w).
Proof. intros K. opened finish_wait. Qed.
#[export] Hint Resolve kept_finish_wait : kept.

Lemma kept_run_once w0 w i s slot began : kept w0 w -> kept w0 (snd (run_once i s slot began w)).
Proof. intros K. opened run_once. Qed.
#[export] Hint Resolve kept_run_once : kept.

Lemma kept_run_slice fuel : forall w0 w i s slot began, kept w0 w ->
  kept w0 (snd (run_slice fuel i s slot began w)).
Proof.
  induction fuel; intros w0 w i s slot began K; cbn [run_slice]; auto.
  assert (H := kept_run_once w0 w i s slot began K).
  destruct (run_once i s slot began w) as [f w1]. destruct f; cbn [snd] in *; auto.
Qed.
#[export] Hint Resolve kept_run_slice : kept.

Lemma kept_after_step w0 w i s slot r f : kept w0 w -> kept w0 (after_step i s slot r f w).
Proof.
  intros K. unfold after_step.
  assert (M : kept w0 (on_lane i (fun l => set_mark (now (l_kernel l)) l) w))
    by (apply kept_on_lane; auto).
  destruct r, f; auto with kept.
Qed.
#[export] Hint Resolve kept_after_step : kept.

(* ---- A step ---- *)

(* It keeps what [kept] says and logs one step on its lane, if it is one. *)
Record stepped (i : nat) (b : bool) (w0 w : world) : Prop := Stepped {
  stepped_lanes : length (w_lanes w) = length (w_lanes w0);
  stepped_sessions : length (w_sessions w) = length (w_sessions w0);
  stepped_out : w_out w = w_out w0;
  stepped_good : all_good w0 -> all_good w;
  stepped_steps : forall k, steps_at w k =
    (steps_at w0 k + if (k =? i)%nat && b then 1 else 0)%nat }.

Lemma stepped_of_kept i w0 w : kept w0 w -> stepped i false w0 w.
Proof. intros []. constructor; auto. intros k. rewrite andb_false_r, Nat.add_0_r. auto. Qed.

Lemma wait_code_bounds r : 0 <= wait_code r.
Proof. destruct r; cbn; lia. Qed.

Lemma stop_code_positive o c : 0 <= c -> 0 <= stop_code o c.
Proof. destruct o; cbn; try lia. intros _. apply wait_code_bounds. Qed.

Lemma reached_positive why b u l : 0 <= reached why b u l.
Proof. destruct why; cbn; try lia. destruct (_ <? _); [|lia]. destruct (_ <=? _); lia. Qed.

Theorem run_step_steps i w : (Z.to_nat i < length (w_lanes w))%nat ->
  stepped (Z.to_nat i) (fst (run_step i w)) w (snd (run_step i w)).
Proof.
  intros Hi. unfold run_step. destruct (l_open (at_lane w i)) eqn:Eo.
  2:{ apply stepped_of_kept. apply kept_refl. }
  assert (D := good_dispatch (l_kernel (at_lane w i))).
  destruct (dispatch (l_kernel (at_lane w i))) as [d l] eqn:Ed. cbn [snd] in D.
  assert (Kc : kept w (on_lane i (fun x => set_open false (set_kernel l x)) w)).
  { apply kept_on_lane; auto with kept. }
  assert (K1 : kept w (on_lane i (set_kernel l) w)) by (apply kept_on_lane; auto with kept).
  destruct d as [d|]; [|apply stepped_of_kept; auto].
  destruct d as [r bound why p sw| |]; try (apply stepped_of_kept; auto; fail).
  cbv zeta. set (w1 := on_lane i (set_kernel l) w) in *.
  set (t := match record_of l (fst r) with Some c => tag c | None => 0 end).
  set (s := Z.shiftr t 32). set (slot := t mod two32).
  assert (K2 := kept_run_slice 1000 w _ i s slot (used_by w1 s slot)
                  (kept_finish_wait w w1 s slot K1)).
  destruct (run_slice 1000 i s slot (used_by w1 s slot) (finish_wait s slot w1)) as [f w2].
  cbn [snd fst] in *.
  set (overhead_ := now l - l_mark (at_lane w1 i)). set (began := used_by w1 s slot).
  unfold close_slice. cbv zeta.
  match goal with |- context [after_step _ _ _ ?r0 _ (log i (128 + ?c :: ?rest) ?w3)] =>
    set (code := c); set (w4 := w3); set (fields := rest); set (rr := r0) end.
  assert (K4 : kept w w4) by (apply kept_on_kernel; auto with kept; intros ? ?; auto with kept).
  clearbody w4.
  assert (Hs : is_step (128 + code :: fields) = true).
  { unfold is_step. cbn [hd]. apply Z.leb_le.
    assert (0 <= code) by (apply stop_code_positive; apply reached_positive). lia. }
  assert (L : stepped (Z.to_nat i) true w4 (log i (128 + code :: fields) w4)).
  { constructor; auto.
    - apply set_nth_length.
    - intros H. apply forall_set_nth; auto. intros _. apply (good_at _ i H).
    - intros k. unfold steps_at. cbn [log on_lane with_lanes w_lanes]. rewrite nth_set_nth.
      destruct (Nat.eqb_spec k (Z.to_nat i)) as [->|]; cbn [andb]; [|lia].
      assert (X := kept_lanes _ _ K4). rewrite X. destruct (Nat.ltb_spec (Z.to_nat i) (length
          (w_lanes w))); [|lia].
      cbn [l_log log_event]. unfold steps_in. cbn [filter]. rewrite Hs. cbn [length].
      unfold at_lane. lia. }
  assert (A := kept_after_step _ _ i s slot rr f (kept_refl (log i (128 + code :: fields) w4))).
  destruct K4 as [A1 A2 A3 A4 A5], L as [B1 B2 B3 B4 B5], A as [C1 C2 C3 C4 C5].
  constructor; auto; try congruence. intros k. rewrite C5, B5, A5. auto.
Qed.

(* Of the machine, whatever sessions the lane sees. *)
Theorem step_seeing_steps vis me w :
  stepped me (fst (step_seeing vis me w)) w (snd (step_seeing vis me w)).
Proof.
  unfold step_seeing, Groups.step_seeing.
  destruct (nth_error (w_lanes w) me) as [l|] eqn:El.
  2:{ apply stepped_of_kept. apply kept_refl. }
  assert (Hme : (me < length (w_lanes w))%nat) by (apply nth_error_Some; congruence).
  unfold act_on. cbv zeta.
  match goal with |- context [run_step _ ?x] => set (v := x) end.
  assert (Hl : nth me (w_lanes v) no_lane = l).
  { unfold v. cbn [w_lanes]. rewrite nth_set_nth, Nat.eqb_refl, repeat_length. cbn [andb].
    destruct (Nat.ltb_spec me (length (w_lanes w))); [auto|lia]. }
  assert (S := run_step_steps (Z.of_nat me) v). rewrite Nat2Z.id in S.
  destruct (run_step (Z.of_nat me) v) as [b w']. cbn [fst snd] in *.
  destruct S as [S1 S2 S3 S4 S5].
  { unfold v. cbn [w_lanes]. rewrite set_nth_length, repeat_length. auto. }
  assert (Hat : at_lane w' (Z.of_nat me) = nth me (w_lanes w') no_lane)
    by (unfold at_lane; rewrite Nat2Z.id; auto).
  assert (Hw : nth me (w_lanes w) no_lane = l) by (apply nth_error_nth; auto).
  constructor; cbn [put w_lanes w_sessions w_out].
  - apply Interleave.upd_length.
  - apply Groups.merge_length.
  - auto.
  - intros G. assert (Gl : Good (l_kernel l)).
    { unfold all_good in G. rewrite Forall_forall in G. apply G. eapply nth_error_In; eauto. }
    assert (Gv : all_good v).
    { unfold all_good, v. cbn [w_lanes]. apply forall_set_nth; auto.
      apply Forall_forall. intros x Hx. apply repeat_spec in Hx. subst x. apply good_new. }
    specialize (S4 Gv). unfold all_good in *. apply Forall_forall. intros x Hx.
    apply In_nth_error in Hx. destruct Hx as [k Hk]. cbn [snd put w_lanes] in Hk.
    rewrite Interleave.nth_upd in Hk.
    destruct (Nat.eqb_spec me k) as [->|].
    + rewrite El in Hk. injection Hk as <-. apply good_at. exact S4.
    + rewrite Forall_forall in G. apply G. eapply nth_error_In; eauto.
  - intros k. unfold steps_at. cbn [put w_lanes].
    destruct (Nat.eq_dec me k) as [->|Hne].
    + assert (E : nth k (Interleave.upd k (at_lane w' (Z.of_nat k)) (w_lanes w)) no_lane
                  = at_lane w' (Z.of_nat k)).
      { apply nth_error_nth. rewrite Interleave.nth_upd, Nat.eqb_refl, El. auto. }
      cbn [snd put w_lanes]. rewrite E.
      rewrite Hat. specialize (S5 k). unfold steps_at in S5. rewrite S5, Hl, Hw. auto.
    + assert (E : nth k (Interleave.upd me (at_lane w' (Z.of_nat me)) (w_lanes w)) no_lane
                  = nth k (w_lanes w) no_lane).
      { assert (X := Interleave.nth_upd me k (at_lane w' (Z.of_nat me)) (w_lanes w)).
        destruct (Nat.eqb_spec me k); [congruence|].
        destruct (nth_error (w_lanes w) k) eqn:Ek.
        - rewrite (nth_error_nth _ _ _ X), (nth_error_nth _ _ _ Ek). auto.
        - rewrite !nth_overflow; auto; [apply nth_error_None; auto|].
          rewrite Interleave.upd_length. apply nth_error_None. auto. }
      cbn [snd put w_lanes]. rewrite E. destruct (Nat.eqb_spec k me); [congruence|]. cbn. lia.
Qed.

(* ---- The end of a wave ---- *)

Lemma kept_accept_effect w0 w i : kept w0 w -> kept w0 (accept_effect i w).
Proof. intros K. opened accept_effect. Qed.
#[export] Hint Resolve kept_accept_effect : kept.

Lemma kept_apply w0 w from to e : kept w0 w -> kept w0 (apply from to e w).
Proof. intros K. opened apply. Qed.
#[export] Hint Resolve kept_apply : kept.

Lemma kept_drain w0 w i : kept w0 w -> kept w0 (drain i w).
Proof. intros K. opened drain. apply kept_on_lane; auto. Qed.
#[export] Hint Resolve kept_drain : kept.

Lemma kept_exchange fuel : forall w0 w, kept w0 w -> kept w0 (exchange fuel w).
Proof. induction fuel; intros w0 w K; cbn [exchange]; kept. Qed.
#[export] Hint Resolve kept_exchange : kept.

Lemma kept_answer_across w0 w n a : kept w0 w -> kept w0 (answer_across n a w).
Proof. intros K. opened answer_across. Qed.
#[export] Hint Resolve kept_answer_across : kept.

Lemma kept_admit_across fuel : forall w0 w c, kept w0 w -> kept w0 (admit_across fuel c w).
Proof. induction fuel; intros w0 w c K; cbn [admit_across]; kept. Qed.
#[export] Hint Resolve kept_admit_across : kept.

Lemma kept_divide w0 w c : kept w0 w -> kept w0 (divide c w).
Proof. intros K. opened divide. apply kept_on_lane; auto. Qed.
#[export] Hint Resolve kept_divide : kept.

Lemma kept_untouch w0 w c : kept w0 w -> kept w0 (untouch w c).
Proof. intros K. opened untouch. Qed.
#[export] Hint Resolve kept_untouch : kept.

Lemma kept_settle_touched w0 w : kept w0 w -> kept w0 (settle_touched w).
Proof. intros K. opened settle_touched. Qed.
#[export] Hint Resolve kept_settle_touched : kept.

Lemma kept_settle fuel : forall w0 w, kept w0 w -> kept w0 (settle fuel w).
Proof. induction fuel; intros w0 w K; cbn [settle]; kept. Qed.
#[export] Hint Resolve kept_settle : kept.

(* ---- Sessions move ---- *)

(* What the machine states about lanes and sessions [17]. *)
Definition layout_of (w : world) : Acceptance.layout :=
  let o := w_out w in
  Acceptance.Layout (map (group_at o) (seq 0 (length (w_lanes w))))
    (map (owner_at o) (seq 0 (length (w_sessions w))))
    (map (fun l => nth l (o_versions o) 0%N) (seq 0 (length (w_lanes w)))).

Notation evolves := Acceptance.evolves.

Lemma evolves_refl y : evolves y y.
Proof. intros g v H. exists v. split; auto. left. split; auto. reflexivity. Qed.

Lemma evolves_trans a b c : evolves a b -> evolves b c -> evolves a c.
Proof.
  intros H1 H2 g v Hv. destruct (H2 g v Hv) as (u & Hu & C).
  destruct (H1 g u Hu) as (t & Ht & D). exists t. split; auto.
  destruct C as [[-> C]|C], D as [[-> D]|D]; [left|right; lia..].
  split; auto. intros s. rewrite D. apply C.
Qed.

(* The groups and what was configured stay; a group keeps its sessions, or its version rises. *)
Record moved (w0 w : world) : Prop := Moved {
  moved_lanes : length (w_lanes w) = length (w_lanes w0);
  moved_sessions : length (w_sessions w) = length (w_sessions w0);
  moved_config : o_config (w_out w) = o_config (w_out w0);
  moved_groups : o_groups (w_out w) = o_groups (w_out w0);
  moved_layout : evolves (layout_of w0) (layout_of w);
  moved_frames : o_frames (w_out w) = o_frames (w_out w0);
  moved_good : all_good w0 -> all_good w;
  moved_steps : forall i, steps_at w i = steps_at w0 i }.

Lemma moved_trans a b c : moved a b -> moved b c -> moved a c.
Proof.
  intros [] []. constructor; auto; try congruence.
  eapply evolves_trans; eauto.
Qed.

Lemma same_layout w0 w : length (w_lanes w) = length (w_lanes w0) ->
  length (w_sessions w) = length (w_sessions w0) -> o_groups (w_out w) = o_groups (w_out w0) ->
  o_homes (w_out w) = o_homes (w_out w0) -> o_versions (w_out w) = o_versions (w_out w0) ->
  layout_of w = layout_of w0.
Proof.
  intros H1 H2 H3 H4 H5. unfold layout_of. rewrite H1, H2, H5.
  assert (G : forall l, group_at (w_out w) l = group_at (w_out w0) l)
    by (intros l; unfold group_at; rewrite H3; auto).
  f_equal; apply map_ext; intros; auto. unfold owner_at. rewrite G, H4. auto.
Qed.

Lemma moved_of_kept w0 w : kept w0 w -> moved w0 w.
Proof.
  intros []. constructor; auto; try congruence.
  rewrite (same_layout w0 w); try congruence. apply evolves_refl.
Qed.

(* Outside lanes and sessions something else than layout and frames changes. *)
Lemma moved_on_out w0 w f : moved w0 w ->
  o_config (f (w_out w)) = o_config (w_out w) -> o_groups (f (w_out w)) = o_groups (w_out w) ->
  o_homes (f (w_out w)) = o_homes (w_out w) -> o_versions (f (w_out w)) = o_versions (w_out w) ->
  o_frames (f (w_out w)) = o_frames (w_out w) -> moved w0 (on_out f w).
Proof.
  intros M H1 H2 H3 H4 H5. apply (moved_trans _ _ _ M). constructor; cbn; auto.
  rewrite (same_layout w (on_out f w)); auto. apply evolves_refl.
Qed.

Lemma moved_with_phase w0 w p : moved w0 w -> moved w0 (with_phase p w).
Proof. intros M. apply moved_on_out; auto. Qed.

Lemma moved_with_wave w0 w n : moved w0 w -> moved w0 (with_wave n w).
Proof. intros M. apply moved_on_out; auto. Qed.

Lemma moved_with_frame w0 w f n : moved w0 w -> moved w0 (with_frame f n w).
Proof. intros M. apply moved_on_out; auto. Qed.

Lemma moved_with_inputs w0 w v s : moved w0 w -> moved w0 (with_inputs v s w).
Proof. intros M. apply moved_on_out; auto. Qed.

Lemma moved_emit w0 w e : moved w0 w -> moved w0 (emit e w).
Proof. intros M. apply moved_on_out; auto. Qed.

Lemma moved_fold {A} (f : world -> A -> world) l : forall w0 w,
  (forall w a, moved w0 w -> moved w0 (f w a)) -> moved w0 w -> moved w0 (fold_left f l w).
Proof. induction l; intros w0 w H K; cbn; auto. Qed.

Lemma moved_rehome w0 w s to : moved w0 w -> moved w0 (rehome s to w).
Proof.
  intros M. apply (moved_trans _ _ _ M). unfold rehome.
  set (o := w_out w).
  set (ch := fun l => (Nat.eqb l (group_at o (Z.to_nat to)) || Nat.eqb l (owner_at o (Z.to_nat
      s)))%bool).
  set (ver := fun l => nth l (o_versions o) 0%N).
  constructor; cbn; auto. intros g v Hv. cbn in Hv. apply nth_map_seq in Hv.
  destruct Hv as [Hg Hv].
  assert (E : nth g (map (fun l => if ch l then N.succ (ver l) else ver l)
                       (seq 0 (length (w_lanes w)))) 0%N
              = if ch g then N.succ (ver g) else ver g).
  { apply nth_error_nth. apply nth_map_seq. auto. }
  assert (V : v = if ch g then N.succ (ver g) else ver g) by (rewrite Hv; exact E).
  exists (ver g). split; [apply nth_map_seq; auto|].
  destruct (ch g) eqn:C; [right; lia|left]. split; auto. intros s'.
  rewrite !Acceptance.members_spec. cbn [layout_of Acceptance.y_owners].
  rewrite !nth_map_seq. cbn [with_homes on_out w_sessions w_out].
  apply orb_false_elim in C. destruct C as [C1 C2].
  apply Nat.eqb_neq in C1, C2. fold o.
  assert (D : forall homes vs,
    owner_at (Outside (o_config o) (o_groups o) homes vs (o_limits o) (o_boundary o) (o_frame o)
                (o_next o) (o_wave o) (o_inputs o) (o_sampled o) (o_phase o) (o_frames o)) s'
    = group_at o (Z.to_nat (hd 0 (nth s' homes [])))) by reflexivity.
  rewrite D, nth_set_nth. unfold lanes_of, w_homes. fold o.
  destruct (Nat.eqb_spec s' (Z.to_nat s)) as [->|]; cbn [andb]; [|reflexivity].
  destruct (_ <? length (o_homes o))%nat eqn:L; [|reflexivity].
  change (group_at o (Z.to_nat (hd 0 (nth (Z.to_nat s) (o_homes o) []))))
    with (owner_at o (Z.to_nat s)).
  split; intros [Hs Ho]; exfalso.
  - congruence.
  - destruct (nth (Z.to_nat s) (o_homes o) []) as [|h r] eqn:Eh; cbn in Ho.
    + apply C2. unfold owner_at. rewrite Eh. exact Ho.
    + congruence.
Qed.

Lemma kept_carry_one w0 w from to b k : kept w0 w -> kept w0 (carry_one from to b w k).
Proof.
  intros K. unfold carry_one.
  destruct (depart (l_kernel (at_lane w from)) k) as [t l] eqn:Ed. destruct t as [t|]; auto.
  assert (D := good_depart (l_kernel (at_lane w from)) k). rewrite Ed in D. cbn [snd] in D.
  apply kept_on_session. apply kept_on_kernel; [|intros ? ?; auto with kept].
  apply kept_on_lane; auto. apply kept_on_lane; auto.
Qed.
#[export] Hint Resolve kept_carry_one : kept.

Lemma kept_rewire w0 w c : kept w0 w -> kept w0 (rewire w c).
Proof.
  intros K. opened rewire.
  - apply kept_on_lane; auto. unfold set_credit. destruct (find_credit _ _); auto.
    unfold set_credit. destruct (find_credit _ _); auto.
  - apply kept_with_sessions; [assumption|apply map_length].
Qed.
#[export] Hint Resolve kept_rewire : kept.

Lemma moved_move_session w0 w s from to b : moved w0 w -> moved w0 (move_session s from to b w).
Proof.
  intros M. apply (moved_trans _ _ _ M). unfold move_session. cbv zeta.
  set (w1 := on_lane to _ w).
  assert (K1 : kept w w1).
  { apply kept_on_kernel; auto with kept. intros l G. destruct b; auto with kept. }
  destruct (depart_session (l_kernel (at_lane w1 from)) s) as [g k] eqn:Ed.
  assert (D := good_depart_session (l_kernel (at_lane w1 from)) s). rewrite Ed in D.
  cbn [snd] in D.
  apply moved_emit. apply moved_fold.
  { intros w' c M'. apply (moved_trans _ _ _ M'). apply moved_of_kept. auto with kept. }
  apply moved_rehome. apply moved_of_kept. apply kept_fold; [auto with kept|].
  apply kept_on_kernel; [|intros ? ?; auto with kept]. apply kept_on_lane; auto.
Qed.

Lemma moved_steal_for w0 w i : moved w0 w -> moved w0 (steal_for w i).
Proof.
  intros M. unfold steal_for. destruct (_ || _); auto.
  destruct (first_offer _ _) as [[v s]|]; auto. apply moved_move_session. auto.
Qed.

Lemma moved_balance_moves fuel : forall w0 w b, moved w0 w ->
  moved w0 (snd (balance_moves fuel b w)).
Proof.
  induction fuel; intros w0 w b M; cbn [balance_moves]; auto.
  destruct (unequal_lanes w) as [[[from to] ahead]|]; auto.
  destruct (offer _ _ _); auto. destruct (_ <=? _); auto.
  apply IHfuel. apply moved_move_session. auto.
Qed.

Lemma moved_take_turns w0 w : moved w0 w -> moved w0 (take_turns w).
Proof.
  intros M. unfold take_turns. destruct (unequal_lanes w) as [[[from to] ahead]|]; auto.
  destruct (runnable_sessions _ _); auto. destruct (_ || _); auto.
  destruct (sort_by _ _) as [|[[s ?] ?] ?]; auto. apply moved_move_session. auto.
Qed.

Lemma moved_balance w0 w : moved w0 w -> moved w0 (balance w).
Proof.
  intros M. unfold balance. assert (B := moved_balance_moves (Nat.div2 (length (w_lanes w))) w0 w
      false M).
  destruct (balance_moves _ _ _) as [b w1]. cbn [snd] in B. destruct (_ && _); auto.
  apply moved_take_turns. auto.
Qed.

(* Every lane at once, by operations that log no step. *)
Lemma moved_map_lanes w0 w f : moved w0 w ->
  (forall l, Good (l_kernel l) -> Good (l_kernel (f l))) ->
  (forall l, steps_in (l_log (f l)) = steps_in (l_log l)) ->
  moved w0 (with_lanes (map f (w_lanes w)) w).
Proof.
  intros M G S. apply (moved_trans _ _ _ M). constructor; cbn; auto.
  - apply map_length.
  - rewrite (same_layout w (with_lanes (map f (w_lanes w)) w)); auto.
    + apply evolves_refl.
    + apply map_length.
  - unfold all_good. cbn. intros H. apply Forall_map. eapply Forall_impl; [|exact H]. auto.
  - intros i. unfold steps_at. cbn.
    destruct (Nat.lt_ge_cases i (length (w_lanes w))) as [Hi|Hi].
    + rewrite (nth_indep _ no_lane (f no_lane)) by (rewrite map_length; auto).
      rewrite map_nth. auto.
    + rewrite !nth_overflow; auto. rewrite map_length. auto.
Qed.

Theorem moved_close_wave w0 w : moved w0 w -> moved w0 (close_wave w).
Proof.
  intros M. unfold close_wave. apply moved_with_phase.
  set (w1 := with_lanes (map (on_kernel (fun l => align l (latest w))) (w_lanes w)) w).
  assert (M1 : moved w0 w1).
  { apply moved_map_lanes; auto. intros l G. cbn. auto with kept. }
  assert (M2 : moved w0 (settle 100 (with_wave (w_wave w1 + 1) w1))).
  { apply (moved_trans _ (with_wave (w_wave w1 + 1) w1)).
    - apply moved_with_wave. auto.
    - apply moved_of_kept. apply kept_settle. apply kept_refl. }
  destruct (f_steal _); auto. apply moved_fold; auto.
  intros w' a M'. apply moved_steal_for. auto.
Qed.

Lemma moved_begin_wave_all w0 w : moved w0 w -> moved w0 (begin_wave_all w).
Proof.
  intros M. unfold begin_wave_all. apply moved_with_phase. apply moved_map_lanes; auto.
  - intros l G. unfold begin_wave_on. destruct (has_work _); auto. cbn. auto with kept.
  - intros l. unfold begin_wave_on. destruct (has_work _); auto.
Qed.

(* ---- Frames ---- *)

Lemma moved_sample n w0 w s : moved w0 w -> moved w0 (sample n w s).
Proof.
  intros M. unfold sample. destruct (s_ended _); [apply moved_emit; auto|].
  apply moved_with_inputs.
  apply (moved_trans _ (emit [33; s; n] w)); [apply moved_emit; auto|].
  apply moved_of_kept. apply kept_on_session. apply kept_refl.
Qed.

Lemma moved_sample_due fuel : forall f w0 w, moved w0 w -> moved w0 (sample_due fuel f w).
Proof.
  induction fuel; intros f w0 w M; cbn [sample_due]; auto.
  destruct (w_inputs w) as [|[a n] r]; auto. destruct (a <=? f); auto.
  apply IHfuel. apply moved_fold.
  - intros w' s M'. apply moved_sample. auto.
  - apply moved_with_inputs. auto.
Qed.

Lemma moved_begin_frame_all w0 w : moved w0 w -> moved w0 (begin_frame_all w).
Proof.
  intros M. unfold begin_frame_all. cbv zeta.
  set (w1 := if w_frame w + 1 <? w_next w then _ else w).
  assert (M1 : moved w0 w1) by (unfold w1; destruct (_ <? _); [apply moved_emit|]; auto).
  clearbody w1.
  set (w2 := with_phase _ _).
  assert (M2 : moved w0 w2).
  { apply moved_with_phase. apply moved_with_frame. apply moved_emit. auto. }
  assert (M3 := moved_sample_due (length (w_inputs w2)) (w_next w) w0 w2 M2).
  clearbody w2.
  destruct (_ <? _); auto. apply moved_map_lanes; auto.
  - intros l G. unfold begin_frame_on. assert (B := good_begin_frame (l_kernel l) (w_next w) G).
    destruct (begin_frame _ _) as [n k]. cbn [snd] in B. destruct (_ <? _); auto.
  - intros l. unfold begin_frame_on. destruct (begin_frame _ _) as [n k].
    destruct (_ <? _); auto.
Qed.

(* All steps that were logged, in the lanes and in the frames that ended. *)
Definition steps_in_lanes (ls : list lane_state) : nat :=
  fold_right (fun l n => (steps_in (l_log l) + n)%nat) 0%nat ls.
Definition steps_in_logs (ls : list (list event)) : nat :=
  fold_right (fun l n => (steps_in l + n)%nat) 0%nat ls.
Definition steps_in_frames (fs : list (list event * list (list event) * list row)) : nat :=
  fold_right (fun f n => (steps_in_logs (snd (fst f)) + n)%nat) 0%nat fs.
Definition steps_of (w : world) : nat :=
  (steps_in_lanes (w_lanes w) + steps_in_frames (o_frames (w_out w)))%nat.

Lemma steps_in_lanes_same : forall a b, length a = length b ->
  (forall i, steps_in (l_log (nth i a no_lane)) = steps_in (l_log (nth i b no_lane))) ->
  steps_in_lanes a = steps_in_lanes b.
Proof.
  induction a as [|x a IH]; intros [|y b] L H; cbn [length] in L; try discriminate; auto.
  change (steps_in_lanes (x :: a)) with (steps_in (l_log x) + steps_in_lanes a)%nat.
  change (steps_in_lanes (y :: b)) with (steps_in (l_log y) + steps_in_lanes b)%nat.
  rewrite (IH b); [|lia|].
  - specialize (H 0%nat). cbn [nth] in H. lia.
  - intros i. apply (H (S i)).
Qed.

Lemma steps_in_lanes_one i : forall a b, length a = length b -> (i < length b)%nat ->
  (forall k, steps_in (l_log (nth k a no_lane))
             = (steps_in (l_log (nth k b no_lane)) + if (k =? i)%nat then 1 else 0)%nat) ->
  steps_in_lanes a = S (steps_in_lanes b).
Proof.
  induction i; intros [|x a] [|y b] L Hi H; cbn [length] in L, Hi; try lia;
    change (steps_in_lanes (x :: a)) with (steps_in (l_log x) + steps_in_lanes a)%nat;
    change (steps_in_lanes (y :: b)) with (steps_in (l_log y) + steps_in_lanes b)%nat.
  - assert (H0 := H 0%nat). cbn [nth Nat.eqb] in H0. rewrite (steps_in_lanes_same a b); [lia|lia|].
    intros k. specialize (H (S k)). cbn [nth Nat.eqb] in H. lia.
  - rewrite (IHi a b); [|lia|lia|].
    + specialize (H 0%nat). cbn [nth Nat.eqb] in H. lia.
    + intros k. apply (H (S k)).
Qed.

Lemma moved_steps_of w0 w : moved w0 w -> steps_of w = steps_of w0.
Proof.
  intros []. unfold steps_of. rewrite moved_frames0.
  rewrite (steps_in_lanes_same (w_lanes w) (w_lanes w0)); auto.
Qed.

(* Transitions: what they keep, and [b] if one step was logged. *)
Record ticked (b : bool) (w0 w : world) : Prop := Ticked {
  ticked_lanes : length (w_lanes w) = length (w_lanes w0);
  ticked_sessions : length (w_sessions w) = length (w_sessions w0);
  ticked_groups : o_groups (w_out w) = o_groups (w_out w0);
  ticked_layout : evolves (layout_of w0) (layout_of w);
  ticked_good : all_good w0 -> all_good w;
  ticked_steps : steps_of w = (steps_of w0 + if b then 1 else 0)%nat }.

Lemma ticked_of_moved w0 w : moved w0 w -> ticked false w0 w.
Proof.
  intros M. assert (S := moved_steps_of _ _ M). destruct M. constructor; auto. lia.
Qed.

Lemma ticked_trans b w0 w1 w : ticked false w0 w1 -> ticked b w1 w -> ticked b w0 w.
Proof.
  intros [] []. constructor; auto; try congruence; try lia. eapply evolves_trans; eauto.
Qed.

Lemma steps_in_rev l : steps_in (rev l) = steps_in l.
Proof.
  unfold steps_in. induction l as [|e l IH]; cbn; auto.
  rewrite filter_app, app_length, IH. cbn. destruct (is_step e); cbn; lia.
Qed.

Lemma ticked_frame_sync b w0 w : ticked false w0 w -> ticked false w0 (frame_sync b w).
Proof.
  intros T. apply (ticked_trans _ _ _ _ T). unfold frame_sync. cbv zeta.
  set (w1 := fold_left drop_input _ w).
  assert (M1 : moved w w1).
  { apply moved_fold.
    - intros w' s M'. unfold drop_input. cbv zeta.
      assert (M2 : moved w (on_session s (set_input []) w')).
      { apply (moved_trans _ _ _ M'). apply moved_of_kept. apply kept_on_session. apply kept_refl. }
      destruct (_ <? _); auto. apply moved_emit. auto.
    - apply moved_of_kept. apply kept_refl. }
  set (w2 := emit _ (with_inputs _ _ w1)).
  assert (M2 : moved w w2) by (apply moved_emit; apply moved_with_inputs; auto).
  apply (ticked_trans _ _ w2); [apply ticked_of_moved; auto|].
  set (f := fun l => let k := l_kernel l in if b then (row_of k, k) else end_frame k).
  assert (C : forall ls, map (fun p => set_log [] (set_kernel (snd (snd p)) (fst p)))
                           (combine ls (map f ls))
              = map (fun l => set_log [] (set_kernel (snd (f l)) l)) ls).
  { induction ls; cbn; auto. rewrite IHls. auto. }
  cbn [with_frames with_boundary on_out with_lanes w_lanes w_sessions w_out].
  rewrite C. constructor; cbn; auto.
  - apply map_length.
  - match goal with |- evolves _ (layout_of ?x) => rewrite (same_layout w2 x) end; auto.
    + apply evolves_refl.
    + apply map_length.
  - unfold all_good. cbn. intros H. apply Forall_map. eapply Forall_impl; [|exact H].
    intros l G. cbn. unfold f. destruct b; cbn; auto. apply good_end_frame. auto.
  - unfold steps_of. cbn. rewrite Nat.add_0_r.
    assert (X : forall ls, steps_in_lanes (map (fun l => set_log [] (set_kernel (snd (f l)) l)) ls)
        = 0%nat).
    { induction ls; cbn; auto. }
    assert (Y : forall ls, steps_in_logs (map (fun l => rev (l_log l)) ls) = steps_in_lanes ls).
    { induction ls as [|l ls IH]; auto.
      change ((steps_in (rev (l_log l)) + steps_in_logs (map (fun l => rev (l_log l)) ls))%nat
              = (steps_in (l_log l) + steps_in_lanes ls)%nat).
      rewrite steps_in_rev, IH. auto. }
    rewrite X, Y. reflexivity.
Qed.

Lemma ticked_with_phase w0 w p : ticked false w0 w -> ticked false w0 (with_phase p w).
Proof.
  intros T. apply (ticked_trans _ _ _ _ T). apply ticked_of_moved. apply moved_with_phase.
  apply moved_of_kept. apply kept_refl.
Qed.

Lemma ticked_with_frame w0 w f n : ticked false w0 w -> ticked false w0 (with_frame f n w).
Proof.
  intros T. apply (ticked_trans _ _ _ _ T). apply ticked_of_moved. apply moved_with_frame.
  apply moved_of_kept. apply kept_refl.
Qed.

Lemma ticked_end_run w o n : ticked false w (end_run o n w).
Proof.
  unfold end_run. cbv zeta. apply ticked_with_phase. apply ticked_frame_sync. apply ticked_of_moved.
  destruct (_ =? _); [apply moved_emit|]; apply moved_of_kept; apply kept_refl.
Qed.

Lemma ticked_end_frame_all w : ticked false w (end_frame_all w).
Proof.
  unfold end_frame_all. cbv zeta. destruct (_ <=? _); [apply ticked_end_run|].
  apply ticked_with_phase. apply ticked_with_frame. apply ticked_frame_sync.
  apply ticked_of_moved. destruct (f_balance _); [apply moved_balance|];
    apply moved_of_kept; apply kept_refl.
Qed.

(* One transition makes at most one step, and logs it. *)
Theorem tick_ticks w : ticked (fst (tick w)) w (snd (tick w)).
Proof.
  assert (R : moved w w) by (apply moved_of_kept; apply kept_refl).
  unfold tick. destruct (w_phase w) as [| |turn|o] eqn:Ep.
  - apply ticked_of_moved. apply moved_begin_frame_all. auto.
  - cbn [fst snd]. destruct (is_over w); [apply ticked_end_run|].
    destruct (_ && _); [apply ticked_of_moved; apply moved_begin_wave_all; auto|].
    destruct (_ && _); [apply ticked_end_run|apply ticked_end_frame_all].
  - destruct (Nat.ltb_spec turn (length (w_lanes w))) as [Hlt|].
    2:{ apply ticked_of_moved. apply moved_close_wave. auto. }
    unfold step. assert (S := step_seeing_steps (sees (w_out w) turn) turn w).
    destruct (step_seeing _ _ _) as [b w1]. cbn [fst snd] in S.
    assert (T : ticked b w w1).
    { destruct S as [S1 S2 S3 S4 S5]. constructor; auto; try congruence.
      - rewrite (same_layout w w1); try congruence. apply evolves_refl.
      - unfold steps_of. rewrite S3. destruct b.
        + rewrite (steps_in_lanes_one turn (w_lanes w1) (w_lanes w) S1 Hlt); [lia|].
          intros k. specialize (S5 k). rewrite andb_true_r in S5. exact S5.
        + rewrite (steps_in_lanes_same (w_lanes w1) (w_lanes w) S1); [lia|].
          intros k. specialize (S5 k). rewrite andb_false_r, Nat.add_0_r in S5. exact S5. }
    destruct b; cbn [fst snd]; auto. apply ticked_with_phase. auto.
  - apply ticked_of_moved. auto.
Qed.
