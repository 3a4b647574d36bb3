(** Several lanes: waves, effects between lanes, moves of sessions and the bounded steal
    (semantics 14, 15, 23; cpu-authority B.6; docs/scheduler.md, "Lanes together").

    Effects are kept in one list in the order they were posted, and sorted when they are delivered.
    Main theorems: [lanes_good]: every operation keeps the invariants of [Lane] on every lane;
    [canonical_unique]: effects are delivered in one order, whatever the order of posting.

    Elsewhere: one lane ([Lane]). *)

From Coq Require Import ZArith List Bool Lia.
From Wavelock Require Import Lane.
Import ListNotations.
Open Scope Z_scope.

Inductive effect :=
| EWake (target : reference) (source : wake_source)
| EPublish (t p : Z)       (** with the neutral weight and class *)
| EHandoff (target : reference) (source : wake_source).

Record post := Post { p_from : Z; p_step : Z; p_sequence : Z; p_to : Z; p_effect : effect }.

Inductive delivery :=
| Woken (r : result unit)
| Published (r : reference) (done : result unit)
| HandedOff (woken : result unit) (preferred : bool).

Inductive theft :=
| Won (session : Z) (victim : Z) (moved : list Z)
| Busy
| Nothing.

Record lanes := Lanes { all : list lane; waves : Z; cursor : nat; posts : list post }.

Definition new_lanes (n : nat) (s : settings) : lanes :=
  Lanes (repeat (new_lane s) n) 0 0 [].

Definition empty_settings : settings := Settings Cooperative 1 false costs_v1.
Definition lane_at (m : lanes) (i : Z) : lane := nth (Z.to_nat i) (all m) (new_lane empty_settings).

Fixpoint set_nth {A} (n : nat) (x : A) (l : list A) : list A :=
  match l, n with
  | [], _ => []
  | _ :: r, O => x :: r
  | y :: r, S k => y :: set_nth k x r
  end.

Definition put (i : Z) (l : lane) (m : lanes) : lanes :=
  Lanes (set_nth (Z.to_nat i) l (all m)) (waves m) (cursor m) (posts m).

(** One lane's operation, on lane [i]. *)
Definition on {A} (i : Z) (f : lane -> A * lane) (m : lanes) : A * lanes :=
  let '(a, l) := f (lane_at m i) in (a, put i l m).

Definition latest (m : lanes) : Z := fold_left (fun t l => Z.max t (now l)) (all m) 0.

(** A wave of [n] slices per lane, or of [n] cycles after the latest clock. *)
Definition begin_waves (by_picks : bool) (n : Z) (m : lanes) : lanes :=
  let sp := if by_picks then Picks n else Until (latest m + n) in
  Lanes (map (fun l => begin_wave l sp) (all m)) (waves m) 0 (posts m).

(** The next slice in canonical order: lane by lane, each until its wave is over or it is idle. *)
Fixpoint dispatch_from (fuel : nat) (m : lanes) : option (Z * decision) * lanes :=
  match fuel with
  | O => (None, m)
  | S k =>
      if Nat.ltb (cursor m) (length (all m)) then
        let i := Z.of_nat (cursor m) in
        let '(d, m1) := on i dispatch m in
        match d with
        | Done (Run r b w p s) => (Some (i, Run r b w p s), m1)
        | _ => dispatch_from k (Lanes (all m1) (waves m1) (S (cursor m1)) (posts m1))
        end
      else (None, m)
  end.

Definition dispatch_next (m : lanes) : option (Z * decision) * lanes :=
  dispatch_from (S (length (all m))) m.

Definition post_effect (from to : Z) (e : effect) (m : lanes) : (Z * Z) * lanes :=
  let step := steps (ctl (lane_at m from)) in
  let same p := (p_from p =? from) && (p_step p =? step) in
  let sequence := count (filter same (posts m)) in
  ((step, sequence),
   Lanes (all m) (waves m) (cursor m) (posts m ++ [Post from step sequence to e])).

Definition deliver (m : lanes) (p : post) (fresh : list reference)
    : delivery * lanes * list reference :=
  let booked l := book OInbox l in
  match p_effect p with
  | EWake r s =>
      let '(d, m1) := on (p_to p) (fun l => wake (booked l) r s) m in (Woken d, m1, fresh)
  | EPublish t pr =>
      match fresh with
      | r :: more =>
          let '(d, m1) := on (p_to p) (fun l => spawn (booked l) r t pr 1024 2 neutral) m in
          (Published r d, m1, more)
      | [] => (Published (0, 0) (Refused NotFresh), m, [])
      end
  | EHandoff r s =>
      let '(d, m1) := on (p_to p) (fun l => wake (booked l) r s) m in
      match d with
      | Done _ =>
          let '(e, m2) := on (p_to p) (fun l => prefer l r) m1 in
          (HandedOff d match e with Done _ => true | Refused _ => false end, m2, fresh)
      | Refused _ => (HandedOff d false, m1, fresh)
      end
  end.

Fixpoint deliver_all (ps : list post) (m : lanes) (fresh : list reference)
    : list (post * delivery) * lanes :=
  match ps with
  | [] => ([], m)
  | p :: r =>
      let '(d, m1, more) := deliver m p fresh in
      let '(ds, m2) := deliver_all r m1 more in
      ((p, d) :: ds, m2)
  end.

(** Canonical order: (sending lane, step, sequence). The sort is stable. *)
Definition canonical (ps : list post) : list post :=
  sort_by p_from (sort_by p_step (sort_by p_sequence ps)).

(** Clocks align to the latest, then effects are applied. [fresh] are the references the kernel gave
    to published coroutines, in that order. *)
Definition end_wave (fresh : list reference) (m : lanes) : list (post * delivery) * lanes :=
  let t := latest m in
  deliver_all (canonical (posts m))
    (Lanes (map (fun l => align l t) (all m)) (waves m + 1) (cursor m) []) fresh.

Definition end_frames (m : lanes) : list row * lanes :=
  (map (fun l => fst (end_frame l)) (all m),
   Lanes (map (fun l => snd (end_frame l)) (all m)) (waves m) (cursor m) (posts m)).

Definition begin_frames (f : Z) (m : lanes) : Z * lanes :=
  (fold_left (fun n l => n + fst (begin_frame l f)) (all m) 0,
   Lanes (map (fun l => snd (begin_frame l f)) (all m)) (waves m) (cursor m) (posts m)).

Definition first_wake (m : lanes) : option Z :=
  fold_left (fun a l =>
    match a, next_wake l with
    | Some x, Some y => Some (Z.min x y)
    | Some x, None => Some x
    | None, y => y
    end) (all m) None.

(** Nothing can happen without input (semantics 29). *)
Definition is_stalled (m : lanes) : bool :=
  let add f := fold_left (fun n l => n + f (at_ l)) (all m) 0 in
  (0 <? add (fun p => count (blocked p)))
  && (add (fun p => count (ready p) + count (current_slot p) + count (sleeping p)
                    + count (held p)) =? 0)
  && match posts m with [] => true | _ => false end.

(** The coroutines of a session in the order of their arrivals. *)
Definition movers (l : lane) (session : Z) : result (list Z) :=
  let slots := session_slots l session in
  match slots, first_in_slice l slots with
  | [], _ => Refused NoSession
  | _, Some s => Refused (InSlice (reference_of l s))
  | _, None =>
      let arrival_of s := match record_of l s with Some c => arrival c | None => 0 end in
      Done (sort_by arrival_of slots)
  end.

Fixpoint carry (slots : list Z) (from to : Z) (fresh : list reference) (stolen : bool) (m : lanes)
    : list Z * lanes :=
  match slots, fresh with
  | s :: r, f :: more =>
      let '(t, m1) := on from (fun l => depart l s) m in
      match t with
      | Some t =>
          let '(_, m2) := on to (fun l => receive l f t stolen) m1 in
          let '(tags, m3) := carry r from to more stolen m2 in
          (tag (t_record t) :: tags, m3)
      | None => carry r from to fresh stolen m1
      end
  | _, _ => ([], m)
  end.

Definition migrate (session from to : Z) (fresh : list reference) (stolen : bool) (m : lanes)
    : result (list Z) * lanes :=
  match movers (lane_at m from) session with
  | Refused r => (Refused r, m)
  | Done slots =>
      let '(_, m1) := on to (fun l => (tt, if stolen then book OSteal l else l)) m in
      let '(g, m2) := on from (fun l => depart_session l session) m1 in
      let '(_, m3) := on to (fun l => (tt, receive_session session g l)) m2 in
      let '(tags, m4) := carry slots from to fresh stolen m3 in (Done tags, m4)
  end.

Fixpoint distinct (l : list Z) : list Z :=
  match l with
  | [] => []
  | x :: r => match distinct r with
              | (y :: _) as d => if x =? y then d else x :: d
              | [] => [x]
              end
  end.

Definition rotate {A} (n : nat) (l : list A) : list A := skipn n l ++ firstn n l.

(** The session a thief may take: of at most eight sessions the first that has a ready coroutine
    among its first eight, is not the current coroutine's and may leave; and only if work stays. *)
Definition offer (l : lane) (round banned : Z) : option Z :=
  if count (ready (at_ l)) + count (current_slot (at_ l)) <? 2 then None
  else
    let sessions :=
      distinct (sort_by (fun x => x) (map (fun e => session_of (tag (snd e))) (records (at_ l)))) in
    let first := Z.to_nat (round mod count sessions) in
    let own := match current (at_ l) with
               | Some (s, _) => match record_of l s with
                                | Some c => session_of (tag c)
                                | None => -1
                                end
               | None => -1
               end in
    let has_ready session :=
      existsb (fun s => memb s (ready (at_ l))) (firstn 8 (session_slots l session)) in
    let list := filter (fun session => negb (session =? own) && has_ready session)
                  (firstn 8 (rotate first sessions)) in
    let stays := match current (at_ l), list with
                 | Some _, _ => true
                 | None, _ :: _ :: _ => true
                 | None, _ => false
                 end in
    if stays then List.find (fun session => negb (session =? banned)) list else None.

Fixpoint numbers (n : nat) : list Z :=
  match n with O => [] | S k => numbers k ++ [Z.of_nat k] end.

Definition victims (m : lanes) (thief : Z) : list Z :=
  let n := length (all m) in
  let first := Z.to_nat ((thief + waves m) mod Z.of_nat n) in
  firstn 4 (filter (fun v => negb (v =? thief)) (rotate first (numbers n))).

Fixpoint first_offer (m : lanes) (banned : Z) (vs : list Z) : option (Z * Z) :=
  match vs with
  | [] => None
  | v :: r =>
      match offer (lane_at m v) (waves m) banned with
      | Some session => Some (v, session)
      | None => first_offer m banned r
      end
  end.

Definition steal (thief banned : Z) (fresh : list reference) (m : lanes) : theft * lanes :=
  if has_work (lane_at m thief) then (Busy, m)
  else
    match first_offer m banned (victims m thief) with
    | Some (v, session) =>
        match migrate session v thief fresh true m with
        | (Done tags, m1) => (Won session v tags, m1)
        | (Refused _, m1) => (Nothing, m1)
        end
    | None => (Nothing, m)
    end.

(** * Every operation keeps the invariants on every lane *)

Definition AllGood (m : lanes) : Prop := Forall Good (all m).

Lemma all_good_new : forall n s, AllGood (new_lanes n s).
Proof.
  intros n s; unfold AllGood, new_lanes; simpl; apply Forall_forall; intros l I.
  apply repeat_spec in I; subst; apply good_new.
Qed.

Lemma good_lane_at : forall m i, AllGood m -> Good (lane_at m i).
Proof.
  intros m i G; unfold lane_at.
  destruct (Nat.lt_ge_cases (Z.to_nat i) (length (all m))).
  - eapply Forall_forall; [exact G | apply nth_In; auto].
  - rewrite nth_overflow by auto; apply good_new.
Qed.

Lemma forall_set_nth : forall {A} (P : A -> Prop) x n l,
  Forall P l -> P x -> Forall P (set_nth n x l).
Proof.
  intros A P x n l F; revert n; induction F; intros n H1; destruct n; simpl; auto.
Qed.

Lemma all_good_on : forall {A} i (f : lane -> A * lane) m,
  (forall l, Good l -> Good (snd (f l))) -> AllGood m -> AllGood (snd (on i f m)).
Proof.
  intros A i f m H G; unfold on.
  pose proof (H _ (good_lane_at m i G)) as H1.
  destruct (f (lane_at m i)) as [a l]; simpl in *.
  apply forall_set_nth; auto.
Qed.

Lemma all_good_map : forall f m, (forall l, Good l -> Good (f l)) ->
  AllGood m -> Forall Good (map f (all m)).
Proof. intros f m H G; apply Forall_map; eapply Forall_impl; eauto. Qed.

Lemma all_good_begin_waves : forall b n m, AllGood m -> AllGood (begin_waves b n m).
Proof.
  intros b n m G; unfold AllGood, begin_waves; cbv zeta; simpl.
  apply all_good_map; auto using good_begin_wave.
Qed.

Lemma all_good_dispatch_from : forall fuel m,
  AllGood m -> AllGood (snd (dispatch_from fuel m)).
Proof.
  intros fuel; induction fuel as [|k IH]; simpl; auto; intros m G.
  destruct (Nat.ltb (cursor m) (length (all m))); auto.
  pose proof (all_good_on (Z.of_nat (cursor m)) dispatch m good_dispatch G) as H.
  destruct (on (Z.of_nat (cursor m)) dispatch m) as [d m1]; simpl in H.
  destruct d as [[] |]; simpl; auto; apply IH; exact H.
Qed.

Lemma all_good_deliver : forall m p fresh,
  AllGood m -> AllGood (snd (fst (deliver m p fresh))).
Proof.
  intros m p fresh G; unfold deliver; cbv zeta.
  assert (W : forall r s, AllGood (snd (on (p_to p) (fun l => wake (book OInbox l) r s) m))).
  { intros; apply all_good_on; auto; intros; apply good_wake, good_book; auto. }
  destruct (p_effect p) as [r s | t pr | r s].
  - specialize (W r s); destruct (on (p_to p) _ m); exact W.
  - destruct fresh as [| r more]; auto.
    assert (S : AllGood (snd (on (p_to p)
      (fun l => spawn (book OInbox l) r t pr 1024 2 neutral) m)))
      by (apply all_good_on; auto; intros; apply good_spawn, good_book; auto).
    destruct (on (p_to p) _ m); exact S.
  - specialize (W r s); destruct (on (p_to p) _ m) as [d m1]; simpl in W.
    destruct d; auto.
    assert (S : AllGood (snd (on (p_to p) (fun l => prefer l r) m1)))
      by (apply all_good_on; auto; intros; apply good_prefer; auto).
    destruct (on (p_to p) _ m1); exact S.
Qed.

Lemma all_good_deliver_all : forall ps m fresh,
  AllGood m -> AllGood (snd (deliver_all ps m fresh)).
Proof.
  intros ps; induction ps as [|p r IH]; simpl; auto; intros m fresh G.
  pose proof (all_good_deliver m p fresh G) as H.
  destruct (deliver m p fresh) as [[d m1] more]; simpl in H.
  specialize (IH m1 more H); destruct (deliver_all r m1 more); exact IH.
Qed.

Lemma all_good_end_wave : forall fresh m, AllGood m -> AllGood (snd (end_wave fresh m)).
Proof.
  intros fresh m G; unfold end_wave; cbv zeta; apply all_good_deliver_all.
  unfold AllGood; simpl; apply all_good_map; auto using good_align.
Qed.

Lemma all_good_carry : forall slots from to fresh stolen m,
  AllGood m -> AllGood (snd (carry slots from to fresh stolen m)).
Proof.
  intros slots; induction slots as [|s r IH]; simpl; auto; intros from to fresh stolen m G.
  destruct fresh as [|f more]; auto.
  pose proof (all_good_on from (fun l => depart l s) m (fun l H => good_depart l s H) G) as H.
  destruct (on from _ m) as [t m1]; simpl in H; destruct t as [t |]; auto.
  pose proof (all_good_on to (fun l => receive l f t stolen) m1
                (fun l K => good_receive l f t stolen K) H) as H2.
  destruct (on to _ m1) as [u m2]; simpl in H2.
  specialize (IH from to more stolen m2 H2); destruct (carry r from to more stolen m2); exact IH.
Qed.

Lemma all_good_migrate : forall session from to fresh stolen m,
  AllGood m -> AllGood (snd (migrate session from to fresh stolen m)).
Proof.
  intros session from to fresh stolen m G; unfold migrate.
  destruct (movers (lane_at m from) session) as [slots |]; auto.
  pose proof (all_good_on to (fun l => (tt, if stolen then book OSteal l else l)) m
                (fun l K => if stolen as b return Good (snd (tt, if b then book OSteal l else l))
                            then good_book OSteal l K else K) G) as B.
  destruct (on to _ m) as [u m1]; simpl in B.
  pose proof (all_good_on from (fun l => depart_session l session) m1
                (fun l K => good_depart_session l session K) B) as D.
  destruct (on from _ m1) as [g m2]; simpl in D.
  pose proof (all_good_on to (fun l => (tt, receive_session session g l)) m2
                (fun l K => good_receive_session session g l K) D) as E.
  destruct (on to _ m2) as [v m3]; simpl in E.
  pose proof (all_good_carry slots from to fresh stolen m3 E) as H.
  destruct (carry slots from to fresh stolen m3); exact H.
Qed.

Lemma all_good_steal : forall thief banned fresh m,
  AllGood m -> AllGood (snd (steal thief banned fresh m)).
Proof.
  intros thief banned fresh m G; unfold steal.
  destruct (has_work (lane_at m thief)); auto.
  destruct (first_offer m banned (victims m thief)) as [[v session] |]; auto.
  pose proof (all_good_migrate session v thief fresh true m G) as H.
  destruct (migrate session v thief fresh true m) as [[] m1]; exact H.
Qed.

(** What a driver of several lanes can do. *)
Inductive lanes_request :=
| OnLane (i : Z) (q : request)
| DispatchNext
| PostEffect (from to : Z) (e : effect)
| BeginWaves (by_picks : bool) (n : Z)
| EndWave (fresh : list reference)
| EndFrames
| BeginFrames (f : Z)
| Migrate (session from to : Z) (fresh : list reference)
| Steal (thief banned : Z) (fresh : list reference).

Definition lanes_step (m : lanes) (q : lanes_request) : lanes :=
  match q with
  | OnLane i q => snd (on i (fun l => (tt, step l q)) m)
  | DispatchNext => snd (dispatch_next m)
  | PostEffect from to e => snd (post_effect from to e m)
  | BeginWaves b n => begin_waves b n m
  | EndWave fresh => snd (end_wave fresh m)
  | EndFrames => snd (end_frames m)
  | BeginFrames f => snd (begin_frames f m)
  | Migrate s from to fresh => snd (migrate s from to fresh false m)
  | Steal t b fresh => snd (steal t b fresh m)
  end.

Theorem lanes_step_good : forall q m, AllGood m -> AllGood (lanes_step m q).
Proof.
  intros q m G; destruct q; cbn [lanes_step].
  - apply all_good_on; [intros l H; exact (step_good q l H) | exact G].
  - apply all_good_dispatch_from, G.
  - exact G.
  - apply all_good_begin_waves, G.
  - apply all_good_end_wave, G.
  - unfold AllGood; apply all_good_map; [exact good_end_frame | exact G].
  - unfold AllGood; apply (all_good_map (fun l => snd (begin_frame l f)));
      [intros l H; apply good_begin_frame, H | exact G].
  - apply all_good_migrate, G.
  - apply all_good_steal, G.
Qed.

(** Every state that any sequence of operations on any number of lanes reaches: on each lane, one
    place per coroutine, and charged + overhead + idle = clock. *)
Theorem lanes_good : forall n s requests,
  AllGood (fold_left lanes_step requests (new_lanes n s)).
Proof.
  intros n s requests; generalize (all_good_new n s); generalize (new_lanes n s).
  induction requests; simpl; auto using lanes_step_good.
Qed.

(** ** The order of effects (semantics 15)

    Effects are applied in the order (sending lane, step, sequence), and no effect is lost or
    doubled. *)

From Coq Require Import Permutation Sorted.

Lemma insert_by_permutation : forall {A} (key : A -> Z) x l,
  Permutation (insert_by key x l) (x :: l).
Proof.
  intros A key x l; induction l as [|y r IH]; simpl; auto.
  destruct (key x <=? key y); auto.
  rewrite IH; apply perm_swap.
Qed.

Lemma sort_by_permutation : forall {A} (key : A -> Z) l, Permutation (sort_by key l) l.
Proof.
  intros A key l; induction l; simpl; auto.
  rewrite insert_by_permutation; constructor; auto.
Qed.

Theorem canonical_permutation : forall ps, Permutation (canonical ps) ps.
Proof. intros; unfold canonical; rewrite !sort_by_permutation; reflexivity. Qed.

(** First by a key, then by another order. *)
Definition by_then {A} (key : A -> Z) (R : A -> A -> Prop) (a b : A) : Prop :=
  key a < key b \/ (key a = key b /\ R a b).

Lemma insert_by_sorted : forall {A} (key : A -> Z) (R : A -> A -> Prop) x l,
  StronglySorted (by_then key R) l -> Forall (R x) l ->
  (forall a b c, R a b -> R b c -> R a c) ->
  StronglySorted (by_then key R) (insert_by key x l).
Proof.
  intros A key R x l S F T; induction S as [|y r S IH H]; simpl.
  - repeat constructor.
  - inversion F; subst; destruct (key x <=? key y) eqn:E.
    + constructor; [constructor; auto |].
      constructor.
      { unfold by_then; destruct (Z.eq_dec (key x) (key y)); [right | left]; auto; lia. }
      apply Forall_forall; intros z I; eapply Forall_forall in H; eauto.
      eapply Forall_forall in H3; eauto; unfold by_then in *.
      destruct H as [H | [H _]]; [left; lia |].
      destruct (Z.eq_dec (key x) (key y)); [right; split; auto; lia | left; lia].
    + constructor; auto.
      rewrite insert_by_permutation; constructor; auto; left; lia.
Qed.

Lemma sort_by_sorted : forall {A} (key : A -> Z) (R : A -> A -> Prop) l,
  StronglySorted R l -> (forall a b c, R a b -> R b c -> R a c) ->
  StronglySorted (by_then key R) (sort_by key l).
Proof.
  intros A key R l S T; induction S as [|x r S IH H]; simpl; [constructor |].
  apply insert_by_sorted; auto; rewrite sort_by_permutation; auto.
Qed.

(** The order of semantics 15. *)
Definition earlier : post -> post -> Prop :=
  by_then p_from (by_then p_step (by_then p_sequence (fun _ _ => True))).

(** Effects are applied in the order (sending lane, step, sequence). *)
Theorem canonical_sorted : forall ps, StronglySorted earlier (canonical ps).
Proof.
  intros ps; unfold canonical, earlier.
  assert (T0 : StronglySorted (fun _ _ : post => True) ps).
  { induction ps; constructor; auto; apply Forall_forall; auto. }
  repeat apply sort_by_sorted; auto; unfold by_then; intros a b c; lia.
Qed.

Definition key_of (p : post) : Z * Z * Z := (p_from p, p_step p, p_sequence p).

Lemma earlier_once : forall a b, earlier a b -> earlier b a -> key_of a = key_of b.
Proof.
  intros a b; unfold earlier, by_then, key_of; intros H1 H2.
  assert (p_from a = p_from b /\ p_step a = p_step b /\ p_sequence a = p_sequence b)
    as (-> & -> & ->) by lia.
  reflexivity.
Qed.

(** The order in which effects were posted (which worker finished first) does not matter: the same
    effects, each with its own (lane, step, sequence), are delivered in the same order. *)
Theorem canonical_unique : forall ps qs,
  Permutation ps qs -> NoDup (map key_of ps) -> canonical ps = canonical qs.
Proof.
  assert (U : forall l m, Permutation l m -> NoDup (map key_of l) ->
    StronglySorted earlier l -> StronglySorted earlier m -> l = m).
  { intros l; induction l as [|x r IH]; intros m P N S1 S2.
    - apply Permutation_nil in P; auto.
    - destruct m as [|y s]; [apply Permutation_sym, Permutation_nil in P; discriminate |].
      inversion S1; inversion S2; inversion N; subst.
      assert (E : x = y).
      { assert (Ix : In x (y :: s)) by (eapply Permutation_in; [exact P | left; auto]).
        assert (Iy : In y (x :: r))
          by (eapply Permutation_in; [apply Permutation_sym; exact P | left; auto]).
        destruct Ix as [Ix | Ix]; auto; destruct Iy as [Iy | Iy]; auto.
        eapply Forall_forall in H2; eauto; eapply Forall_forall in H6; eauto.
        exfalso; apply H9; rewrite (earlier_once x y H2 H6); apply in_map; auto. }
      subst; f_equal; apply IH; auto; eapply Permutation_cons_inv; eauto. }
  intros ps qs P N; apply U; auto using canonical_sorted.
  - rewrite !canonical_permutation; auto.
  - eapply Permutation_NoDup; [| exact N].
    apply Permutation_map, Permutation_sym, canonical_permutation.
Qed.
