(* Every state the machine reaches has each live coroutine in exactly one place and
   conserves every lane's clock; a canonical round is exactly one step. *)

From Coq Require Import List Arith NArith Lia Bool.
From Wavelock Require Import Interleave Machine.
Import ListNotations.
Open Scope N_scope.

(* Steps in a log. *)
Definition nsteps (g : list event) : nat :=
  length (filter (fun e => match e with EStep _ _ => true | _ => false end) g).

Lemma nsteps_app g h : nsteps (g ++ h) = (nsteps g + nsteps h)%nat.
Proof. unfold nsteps. rewrite filter_app, app_length. auto. Qed.

Arguments nsteps : simpl never.
Arguments chan_occ : simpl never.
Arguments lane_occ : simpl never.
Arguments sess_occ : simpl never.
Arguments sess_live : simpl never.
Arguments eqc : simpl never.

(* An outbox is in order of steps, and numbered in the order of the posts. *)
Definition out_ok (l : lane) : Prop :=
  (forall i p, nth_error (outbox l) i = Some p -> p_seq p = N.of_nat i /\ p_step p <= steps l) /\
  (forall i j p q, (i < j)%nat -> nth_error (outbox l) i = Some p ->
     nth_error (outbox l) j = Some q -> p_step p <= p_step q).

(* What an operation that is no step keeps of a lane. *)
Record lane_ok (l l' : lane) : Prop := {
  l_conserved : conserved l -> conserved l';
  l_steps : steps l' = steps l;
  l_log : nsteps (log l') = nsteps (log l);
  l_out : out_ok l -> out_ok l';
  l_clock : now l <= now l';
  l_end : wave_end l' = wave_end l }.

Lemma lane_ok_refl l : lane_ok l l.
Proof. constructor; auto. lia. Qed.

Lemma lane_ok_trans a b c : lane_ok a b -> lane_ok b c -> lane_ok a c.
Proof. intros [] []. constructor; auto; try congruence; try lia. Qed.

Lemma book_ok n l : lane_ok l (book n l).
Proof.
  constructor; cbn; auto; unfold conserved, now; cbn; lia.
Qed.

Lemma idle_ok t l : lane_ok l (idle_to t l).
Proof.
  constructor; cbn; auto; unfold conserved, now; cbn; try lia.
Qed.

Definition is_step (e : event) : bool := match e with EStep _ _ => true | _ => false end.

Lemma note_ok e l : is_step e = false -> lane_ok l (note e l).
Proof.
  intros H. constructor; cbn; auto; try (unfold now; cbn; lia).
  rewrite nsteps_app. unfold nsteps at 2. cbn. destruct e; cbn in *; try discriminate; lia.
Qed.

Lemma enqueue_ok c l : lane_ok l (enqueue c l).
Proof. constructor; cbn; auto; unfold now; cbn; lia. Qed.

Lemma set_run_ok c q p l : lane_ok l (set_run c q p l).
Proof. constructor; cbn; auto; unfold now; cbn; lia. Qed.

Lemma set_ready_ok r l : lane_ok l (set_ready r l).
Proof. constructor; cbn; auto; unfold now; cbn; lia. Qed.

Lemma set_sleepers_ok r l : lane_ok l (set_sleepers r l).
Proof. constructor; cbn; auto; unfold now; cbn; lia. Qed.

Lemma set_credits_ok r l : lane_ok l (set_credits r l).
Proof. constructor; cbn; auto; unfold now; cbn; lia. Qed.

Lemma nth_snoc {A} (l : list A) x i y :
  nth_error (l ++ [x]) i = Some y ->
  (nth_error l i = Some y /\ (i < length l)%nat) \/ (i = length l /\ y = x).
Proof.
  intros H. destruct (Nat.lt_ge_cases i (length l)) as [Hi|Hi].
  - rewrite nth_error_app1 in H; auto.
  - rewrite nth_error_app2 in H; auto. right.
    destruct (i - length l)%nat as [|n] eqn:E; simpl in H.
    + split; [lia|congruence].
    + destruct n; discriminate.
Qed.

Lemma put_post_ok e l : lane_ok l (put_post e l).
Proof.
  constructor; cbn; auto; try (unfold now; cbn; lia).
  intros [H1 H2]. split; cbn.
  - intros i p Hp. apply nth_snoc in Hp. destruct Hp as [[Hp _]|[-> ->]]; auto.
    cbn. split; auto. lia.
  - intros i j p q Hij Hp Hq. apply nth_snoc in Hp. apply nth_snoc in Hq.
    destruct Hq as [[Hq Hj]|[-> ->]].
    + destruct Hp as [[Hp _]|[-> ->]]; [eauto|lia].
    + destruct Hp as [[Hp _]|[-> ->]]; [|lia]. cbn. apply H1 in Hp. tauto.
Qed.

Lemma keep_ok c l : lane_ok l (keep c l).
Proof. unfold keep. destruct (left l =? 0); auto using enqueue_ok, set_run_ok. Qed.

Lemma keep_occ c d l : current l = None ->
  lane_occ c (keep d l) = (lane_occ c l + eqc c d)%nat.
Proof.
  intros H. unfold keep, lane_occ. destruct (left l =? 0); cbn.
  - rewrite count_app. cbn. lia.
  - rewrite H. cbn. lia.
Qed.

Lemma enqueue_occ c d l : lane_occ c (enqueue d l) = (lane_occ c l + eqc c d)%nat.
Proof. unfold lane_occ; cbn. rewrite count_app. cbn. lia. Qed.

Lemma put_post_occ c e l :
  lane_occ c (put_post e l) = (lane_occ c l + count c (effect_cid e))%nat.
Proof.
  unfold lane_occ; cbn. rewrite flat_map_app, count_app. cbn. rewrite app_nil_r. lia.
Qed.

Section Invariants.

Variables mem co : Type.
Notation session := (session mem co).
Notation view := (view mem co).
Notation local_state := (local_state mem co).
Notation state := (state mem co).

Variable slice : mem -> co -> option answer -> N -> slice_result mem co.
Variable choose : list cid -> nat.
Variable cfg : settings.

Definition vocc (c : cid) (v : view) : nat :=
  sumi (fun i o => match o with Some s => sess_occ _ _ c i s | None => 0%nat end) 0 v.

Definition vlive (c : cid) (v : view) : nat :=
  sumi (fun i o => match o with Some s => sess_live _ _ c i s | None => 0%nat end) 0 v.

Definition pat (v : view) : list bool :=
  map (fun o => match o with Some _ => true | None => false end) v.

Definition bal (c : cid) (x : local_state) : nat := (lane_occ c (fst x) + vocc c (snd x))%nat.

(* From [x] to [y] the coroutines [out] left their places and [inn] got one. *)
Record good (out inn : list cid) (x y : local_state) : Prop := {
  g_pat : pat (snd y) = pat (snd x);
  g_bal : forall c, (bal c y + count c out + vlive c (snd x)
                     = bal c x + count c inn + vlive c (snd y))%nat;
  g_lane : lane_ok (fst x) (fst y) }.

Lemma good_refl x : good [] [] x x.
Proof. constructor; auto using lane_ok_refl. Qed.

Lemma good_trans o1 i1 o2 i2 x y z :
  good o1 i1 x y -> good o2 i2 y z -> good (o1 ++ o2) (i1 ++ i2) x z.
Proof.
  intros [P1 B1 L1] [P2 B2 L2]. constructor.
  - congruence.
  - intros c. specialize (B1 c). specialize (B2 c). rewrite !count_app. lia.
  - eapply lane_ok_trans; eauto.
Qed.

Lemma good_weaken out inn out' inn' x y :
  (forall c, count c out + count c inn' = count c out' + count c inn)%nat ->
  good out inn x y -> good out' inn' x y.
Proof.
  intros H [P B L]. constructor; auto. intros c. specialize (B c). specialize (H c). lia.
Qed.

Lemma vset_sum (f : nat -> session -> nat) (v : view) i s s' :
  vget _ _ v i = Some s ->
  (sumi (fun i o => match o with Some s => f i s | None => 0%nat end) 0 (vset _ _ v i s')
   + f i s =
   sumi (fun i o => match o with Some s => f i s | None => 0%nat end) 0 v + f i s')%nat.
Proof.
  unfold vget, vset. intros H. destruct (nth_error v i) as [o|] eqn:E; [|discriminate].
  subst o. apply (sumi_upd (fun i o => match o with Some s => f i s | None => 0%nat end)
                    v 0 i (Some s) (Some s') E).
Qed.

Lemma vset_pat (v : view) i (s s' : session) : vget _ _ v i = Some s -> pat (vset _ _ v i s') = pat v.
Proof.
  unfold vget, vset, pat. revert i. induction v as [|o v IH]; intros i H; destruct i; cbn in *; auto.
  - subst o. auto.
  - f_equal. apply IH. auto.
Qed.

Lemma vget_vset (v : view) i (s s' : session) : vget _ _ v i = Some s -> vget _ _ (vset _ _ v i s') i = Some s'.
Proof.
  unfold vget, vset. rewrite nth_upd, Nat.eqb_refl.
  destruct (nth_error v i); cbn; [auto|discriminate].
Qed.

Lemma good_set out inn i s s' (l : lane) (v : view) :
  vget _ _ v i = Some s ->
  (forall c, sess_occ _ _ c i s' + count c out + sess_live _ _ c i s
             = sess_occ _ _ c i s + count c inn + sess_live _ _ c i s')%nat ->
  good out inn (l, v) (l, vset _ _ v i s').
Proof.
  intros Hv H. constructor; cbn.
  - eapply vset_pat; eauto.
  - intros c. specialize (H c). unfold bal, vocc, vlive; cbn.
    assert (A := vset_sum (sess_occ _ _ c) v i s s' Hv).
    assert (B := vset_sum (sess_live _ _ c) v i s s' Hv).
    cbn in A, B. lia.
  - apply lane_ok_refl.
Qed.

Lemma good_lane out inn (l l' : lane) (v : view) :
  lane_ok l l' ->
  (forall c, lane_occ c l' + count c out = lane_occ c l + count c inn)%nat ->
  good out inn (l, v) (l', v).
Proof.
  intros H1 H2. constructor; cbn; auto. intros c. specialize (H2 c). unfold bal; cbn. lia.
Qed.

(* ---- Sessions ---- *)

Lemma occ_chans c i (s : session) k ch ch' :
  nth_error (s_chans _ _ s) k = Some ch ->
  (sess_occ _ _ c i (set_chans _ _ (upd k ch' (s_chans _ _ s)) s) + chan_occ i c ch
   = sess_occ _ _ c i s + chan_occ i c ch')%nat.
Proof.
  intros H. unfold sess_occ; cbn.
  assert (A := sumi_upd (fun _ ch => chan_occ i c ch) (s_chans _ _ s) 0 k ch ch' H).
  cbn in A. lia.
Qed.

Lemma live_chans c i (s : session) x : sess_live _ _ c i (set_chans _ _ x s) = sess_live _ _ c i s.
Proof. reflexivity. Qed.

Lemma coro_at_upd (s : session) slot y j :
  coro_at _ _ (set_cos _ _ (upd slot y (s_cos _ _ s)) s) j =
  if Nat.eqb slot j then match nth_error (s_cos _ _ s) j with Some _ => y | None => None end
  else coro_at _ _ s j.
Proof.
  unfold coro_at; cbn. rewrite nth_upd. destruct (Nat.eqb slot j); auto.
  destruct (nth_error (s_cos _ _ s) j); auto.
Qed.

Lemma coro_at_some (s : session) slot q :
  coro_at _ _ s slot = Some q -> nth_error (s_cos _ _ s) slot = Some (Some q).
Proof. unfold coro_at. destruct (nth_error (s_cos _ _ s) slot); congruence. Qed.

Lemma live_replace c i (s : session) slot q y :
  coro_at _ _ s slot = Some q ->
  sess_live _ _ c i (set_cos _ _ (upd slot (Some y) (s_cos _ _ s)) s) = sess_live _ _ c i s.
Proof.
  intros H. unfold sess_live. destruct (Nat.eqb (fst c) i); auto.
  rewrite coro_at_upd. destruct (Nat.eqb_spec slot (snd c)) as [->|]; auto.
  rewrite H. apply coro_at_some in H. rewrite H. auto.
Qed.

Lemma give_occ c i slot a (s : session) : sess_occ _ _ c i (give _ _ slot a s) = sess_occ _ _ c i s.
Proof. unfold give. destruct (coro_at _ _ s slot); auto. Qed.

Lemma give_live c i slot a (s : session) :
  sess_live _ _ c i (give _ _ slot a s) = sess_live _ _ c i s.
Proof.
  unfold give. destruct (coro_at _ _ s slot) eqn:E; auto. eapply live_replace; eauto.
Qed.

(* ---- Operations of a step ---- *)

Lemma good_give i slot a (s : session) l (v : view) :
  vget _ _ v i = Some s -> good [] [] (l, v) (l, vset _ _ v i (give _ _ slot a s)).
Proof.
  intros H. eapply good_set; eauto. intros c. rewrite give_occ, give_live. lia.
Qed.

Lemma good_post e l (v : view) : good [] (effect_cid e) (l, v) (put_post e l, v).
Proof. apply good_lane; [apply put_post_ok|]. intros c. rewrite put_post_occ. cbn. lia. Qed.

Lemma wake_good me c a x : good [] [c] x (wake _ _ cfg me c a x).
Proof.
  destruct x as [l v]. unfold wake; cbn [fst snd].
  assert (Hpost : good [] [c] (l, v) (put_post (Wake c a) l, v)) by apply (good_post (Wake c a)).
  destruct (vget _ _ v (fst c)) as [s|] eqn:Es; [|exact Hpost].
  destruct (coro_at _ _ s (snd c)) as [q|]; [|exact Hpost].
  destruct (Nat.eqb (co_lane _ q) me); [|exact Hpost].
  eapply (good_weaken ([] ++ []) ([c] ++ [])); [reflexivity|].
  eapply good_trans; [|apply good_give; eauto].
  apply good_lane.
  - eapply lane_ok_trans; [apply book_ok|]. eapply lane_ok_trans; [apply enqueue_ok|].
    apply note_ok. auto.
  - intros d. unfold lane_occ; cbn. rewrite count_app. cbn. lia.
Qed.

Lemma wake_all_good me a cs : forall x, good [] cs x (wake_all _ _ cfg me a cs x).
Proof.
  induction cs as [|c cs IH]; intros x; cbn [wake_all]; [apply good_refl|].
  apply (good_weaken ([] ++ []) ([c] ++ cs)); [reflexivity|].
  eapply good_trans; [apply wake_good|apply IH].
Qed.

Lemma resume_good c a x : current (fst x) = None -> good [] [c] x (resume _ _ c a x).
Proof.
  destruct x as [l v]. cbn. intros H. unfold resume; cbn [fst snd].
  assert (Hk : forall v', good [] [c] (l, v') (keep c l, v')).
  { intros v'. apply good_lane; [apply keep_ok|]. intros d. rewrite keep_occ; auto. cbn. lia. }
  destruct (vget _ _ v (fst c)) as [s|] eqn:Es; auto.
  apply (good_weaken ([] ++ []) ([c] ++ [])); [reflexivity|].
  eapply good_trans; [apply Hk|apply good_give; auto].
Qed.

Definition opt_cid (o : nat) (r : option nat) : list cid :=
  match r with Some slot => [(o, slot)] | None => [] end.

Lemma wake_receiver_good me o r v x : good [] (opt_cid o r) x (wake_receiver _ _ cfg me o r v x).
Proof. destruct r; cbn; [apply wake_good|apply good_refl]. Qed.

Lemma deliver_occ i c v ch ch' r : deliver v ch = (ch', r) ->
  (chan_occ i c ch' + count c (opt_cid i r) = chan_occ i c ch)%nat.
Proof.
  unfold deliver. destruct (receivers ch) as [|x rest] eqn:E; intros H; injection H as <- <-;
    unfold chan_occ; cbn; rewrite ?E; cbn; lia.
Qed.

Lemma good_chan out inn o (s : session) k ch ch' l v :
  vget _ _ v o = Some s -> nth_error (s_chans _ _ s) k = Some ch ->
  (forall c, chan_occ o c ch' + count c out = chan_occ o c ch + count c inn)%nat ->
  good out inn (l, v) (l, vset _ _ v o (set_chans _ _ (upd k ch' (s_chans _ _ s)) s)).
Proof.
  intros Hv Hk H. eapply good_set; eauto. intros c. specialize (H c).
  rewrite live_chans. assert (A := occ_chans c o s k ch ch' Hk). lia.
Qed.

Lemma send_here_good e me c o k v w so x :
  current (fst x) = None -> vget _ _ (snd x) o = Some so ->
  good [] [c] x (send_here _ _ cfg e me c o k v w so x).
Proof.
  intros Hc Hv. unfold send_here. destruct x as [l vw]; cbn [fst snd] in *.
  destruct (nth_error (s_chans _ _ so) k) as [ch|] eqn:Ek; [|apply resume_good; auto].
  destruct (closed ch); [apply resume_good; auto|].
  destruct ((0 <? local_room ch _ _ _) && _).
  - destruct (deliver v ch) as [ch' r] eqn:Ed.
    apply (good_weaken (opt_cid o r ++ ([] ++ [])) ([] ++ ([c] ++ opt_cid o r))).
    { intros d. rewrite !count_app. cbn. lia. }
    eapply good_trans.
    { apply (good_chan (opt_cid o r) [] o so k ch ch'); auto. intros d.
      assert (A := deliver_occ o d v ch ch' r Ed). cbn. lia. }
    eapply good_trans; [apply resume_good; auto|apply wake_receiver_good].
  - destruct w; [|apply resume_good; auto].
    eapply good_chan; eauto. intros d. unfold chan_occ; cbn.
    rewrite map_app, count_app. cbn. lia.
Qed.

Lemma send_away_good c o k v w x :
  current (fst x) = None -> good [] [c] x (send_away _ _ c o k v w x).
Proof.
  intros Hc. unfold send_away. destruct x as [l vw]; cbn [fst snd] in *.
  destruct (credit_of (o, k) (credits l)) as [n|]; [|apply resume_good; auto].
  destruct (0 <? n).
  - apply (good_weaken ([] ++ []) ([] ++ [c])); [reflexivity|].
    eapply good_trans; [|apply resume_good; auto].
    apply good_lane.
    + eapply lane_ok_trans; [apply set_credits_ok|apply put_post_ok].
    + intros d. rewrite put_post_occ. unfold lane_occ; cbn. lia.
  - destruct w; [|apply resume_good; auto]. apply (good_post (WaitToSend o k c v)).
Qed.

Lemma send_good e me c o k v w x :
  current (fst x) = None -> good [] [c] x (send _ _ cfg e me c o k v w x).
Proof.
  intros H. unfold send. destruct (vget _ _ (snd x) o) as [so|] eqn:E;
    [|apply send_away_good; auto].
  destruct (_ || _); [apply send_here_good; auto|apply send_away_good; auto].
Qed.

Lemma admit_here_good e me o k x : good [] [] x (admit_here _ _ cfg e me o k x).
Proof.
  unfold admit_here. destruct x as [l vw]; cbn [fst snd].
  destruct (vget _ _ vw o) as [so|] eqn:Eo; [|apply good_refl].
  destruct (nth_error (s_chans _ _ so) k) as [ch|] eqn:Ek; [|apply good_refl].
  destruct (senders ch) as [|[d v] rest] eqn:Es; [apply good_refl|].
  destruct (_ && _); [|apply good_refl].
  destruct (deliver v (set_senders rest ch)) as [ch' r] eqn:Ed.
  apply (good_weaken ((d :: opt_cid o r) ++ ([] ++ [])) ([] ++ (opt_cid o r ++ [d]))).
  { intros c. cbn [count app]. rewrite !count_app. cbn. lia. }
  eapply good_trans.
  { apply (good_chan (d :: opt_cid o r) [] o so k ch ch'); auto. intros c.
    assert (A := deliver_occ o c v _ ch' r Ed).
    unfold chan_occ in *; cbn in *. rewrite Es. cbn. lia. }
  eapply good_trans; [apply wake_receiver_good|apply wake_good].
Qed.

Lemma receive_good e me c k w x :
  current (fst x) = None -> good [] [c] x (receive _ _ cfg e me c k w x).
Proof.
  intros H. unfold receive. destruct x as [l vw]; cbn [fst snd] in *.
  destruct (vget _ _ vw (fst c)) as [s|] eqn:Ev; [|apply resume_good; auto].
  destruct (nth_error (s_chans _ _ s) k) as [ch|] eqn:Ek; [|apply resume_good; auto].
  destruct (queue ch) as [|v rest] eqn:Eq.
  - destruct (closed ch); [apply resume_good; auto|].
    destruct w; [|apply resume_good; auto].
    eapply good_chan; eauto. intros d. unfold chan_occ; cbn.
    rewrite map_app, count_app. cbn. destruct c; cbn. lia.
  - apply (good_weaken ([] ++ ([] ++ [])) ([] ++ ([c] ++ []))); [reflexivity|].
    eapply good_trans; [|eapply good_trans; [|apply admit_here_good]].
    + apply (good_chan [] [] (fst c) s k ch (set_queue rest ch)); auto.
    + apply resume_good. auto.
Qed.

Lemma coro_at_snoc (s : session) y j :
  coro_at _ _ (set_cos _ _ (s_cos _ _ s ++ [Some y]) s) j =
  if Nat.eqb (length (s_cos _ _ s)) j then Some y else coro_at _ _ s j.
Proof.
  unfold coro_at; cbn. destruct (Nat.eqb_spec (length (s_cos _ _ s)) j) as [<-|Hne].
  - rewrite nth_error_app2; auto. rewrite Nat.sub_diag. auto.
  - destruct (Nat.lt_ge_cases j (length (s_cos _ _ s))) as [Hj|Hj].
    + rewrite nth_error_app1; auto.
    + rewrite nth_error_app2; auto.
      destruct (j - length (s_cos _ _ s))%nat eqn:E; [lia|]. cbn.
      assert (nth_error (s_cos _ _ s) j = None) as -> by (apply nth_error_None; auto).
      destruct n; auto.
Qed.

Lemma eqc_pair c i slot :
  eqc c (i, slot) = if Nat.eqb (fst c) i then (if Nat.eqb (snd c) slot then 1%nat else 0%nat) else 0%nat.
Proof.
  unfold eqc, cid_eqb; cbn. destruct (Nat.eqb (fst c) i); cbn; auto.
Qed.

Lemma live_snoc c i (s : session) y :
  sess_live _ _ c i (set_cos _ _ (s_cos _ _ s ++ [Some y]) s)
  = (sess_live _ _ c i s + eqc c (i, length (s_cos _ _ s)))%nat.
Proof.
  rewrite eqc_pair. unfold sess_live. destruct (Nat.eqb (fst c) i); auto.
  rewrite coro_at_snoc. rewrite (Nat.eqb_sym (snd c)).
  destruct (Nat.eqb_spec (length (s_cos _ _ s)) (snd c)) as [Heq|Hne].
  - unfold coro_at. rewrite <- Heq.
    assert (nth_error (s_cos _ _ s) (length (s_cos _ _ s)) = None) as ->
      by (apply nth_error_None; auto). auto.
  - lia.
Qed.

Lemma spawn_good e me c child to x :
  current (fst x) = None -> good [] [c] x (spawn _ _ e me c child to x).
Proof.
  intros H. unfold spawn. destruct x as [l vw]; cbn [fst snd] in *.
  destruct (vget _ _ vw (fst c)) as [s|] eqn:Ev; [|apply resume_good; auto].
  destruct (lives_on _ _ _); [|apply resume_good; auto].
  set (d := (fst c, length (s_cos _ _ s)) : cid).
  apply (good_weaken ([d] ++ ([] ++ ([] ++ []))) ([] ++ ([] ++ ([d] ++ [c])))).
  { intros z. rewrite !count_app. cbn. lia. }
  eapply good_trans.
  { apply (good_set [d] [] (fst c) s
             (set_cos _ _ (s_cos _ _ s ++ [Some (Coro co child to None)]) s)); auto.
    intros z. rewrite live_snoc. unfold sess_occ; cbn. fold d. lia. }
  eapply good_trans.
  { apply (good_lane [] [] l (note (ESpawned d) l)); [apply note_ok; auto|].
    intros z. unfold lane_occ; cbn. lia. }
  unfold on_lane; cbn [fst snd].
  destruct (Nat.eqb to me).
  - eapply good_trans; [|apply resume_good; auto].
    apply good_lane; [apply enqueue_ok|]. intros z. rewrite enqueue_occ. cbn. lia.
  - eapply good_trans; [|apply resume_good; auto].
    apply (good_post (Publish d)).
Qed.

Lemma join_good c t x : current (fst x) = None -> good [] [c] x (join _ _ c t x).
Proof.
  intros H. unfold join. destruct x as [l vw]; cbn [fst snd] in *.
  destruct (vget _ _ vw (fst c)) as [s|] eqn:Ev; [|apply resume_good; auto].
  destruct (coro_at _ _ s t); [|apply resume_good; auto].
  destruct (Nat.eqb t (snd c)); [apply resume_good; auto|].
  eapply good_set; eauto. intros d. unfold sess_occ, sess_live, coro_at; cbn.
  rewrite map_app, count_app. cbn. destruct c; cbn. lia.
Qed.

Lemma close_good me c k x : current (fst x) = None -> good [] [c] x (close _ _ cfg me c k x).
Proof.
  intros H. unfold close. destruct x as [l vw]; cbn [fst snd] in *.
  destruct (vget _ _ vw (fst c)) as [s|] eqn:Ev; [|apply resume_good; auto].
  destruct (nth_error (s_chans _ _ s) k) as [ch|] eqn:Ek; [|apply resume_good; auto].
  set (rs := map (pair (fst c)) (receivers ch)). set (ss := map fst (senders ch)).
  apply (good_weaken ((rs ++ ss) ++ ([] ++ ([] ++ []))) ([] ++ ([] ++ ([c] ++ (rs ++ ss))))).
  { intros z. rewrite !count_app. cbn. lia. }
  eapply good_trans.
  { apply (good_chan (rs ++ ss) [] (fst c) s k ch
             (set_closed true (set_receivers [] (set_senders [] ch)))); eauto.
    intros d. rewrite count_app. unfold chan_occ; cbn. unfold rs, ss. lia. }
  eapply good_trans.
  { apply (good_lane [] [] l (note (EClosed (fst c) k) l)); [apply note_ok; auto|].
    intros z. unfold lane_occ; cbn. lia. }
  eapply good_trans; [apply resume_good; auto|apply wake_all_good].
Qed.

Lemma count_filter_split i c t (js : list (nat * nat)) :
  (count c (map (fun j => (i, snd j)) (filter (fun j => Nat.eqb (fst j) t) js))
   + count c (map (fun j => (i, snd j)) (filter (fun j => negb (Nat.eqb (fst j) t)) js))
   = count c (map (fun j => (i, snd j)) js))%nat.
Proof.
  induction js as [|j js IH]; cbn; auto.
  destruct (Nat.eqb (fst j) t); cbn; lia.
Qed.

Lemma finish_good me c v x q s :
  vget _ _ (snd x) (fst c) = Some s -> coro_at _ _ s (snd c) = Some q ->
  good [] [c] x (finish _ _ cfg me c v x).
Proof.
  intros Ev Eq. unfold finish. destruct x as [l vw]; cbn [fst snd] in *. rewrite Ev.
  set (mine := filter (fun j => Nat.eqb (fst j) (snd c)) (s_joins _ _ s)).
  set (rest := filter (fun j => negb (Nat.eqb (fst j) (snd c))) (s_joins _ _ s)).
  set (ms := map (fun j => (fst c, snd j)) mine).
  apply (good_weaken (ms ++ ([] ++ [])) ([c] ++ ([] ++ ms))).
  { intros z. rewrite !count_app. cbn. lia. }
  eapply good_trans.
  { apply (good_set ms [c] (fst c) s (set_joins _ _ rest
             (set_cos _ _ (upd (snd c) None (s_cos _ _ s)) s))); auto.
    intros d. unfold sess_occ; cbn.
    assert (A := count_filter_split (fst c) d (snd c) (s_joins _ _ s)).
    fold mine rest ms in A.
    assert (B : (sess_live _ _ d (fst c) (set_joins _ _ rest
                   (set_cos _ _ (upd (snd c) None (s_cos _ _ s)) s)) + eqc d c
                 = sess_live _ _ d (fst c) s)%nat).
    { assert (E : eqc d c = eqc d (fst c, snd c)) by (destruct c; auto).
      rewrite E, eqc_pair. clear E. unfold sess_live. destruct (Nat.eqb (fst d) (fst c)); auto.
      change (coro_at _ _ (set_joins _ _ rest (set_cos _ _ (upd (snd c) None (s_cos _ _ s)) s)) (snd d))
        with (coro_at _ _ (set_cos _ _ (upd (snd c) None (s_cos _ _ s)) s) (snd d)).
      rewrite coro_at_upd. rewrite (Nat.eqb_sym (snd d)).
      destruct (Nat.eqb_spec (snd c) (snd d)) as [Heq|Hne]; [|lia].
      rewrite <- Heq, Eq. apply coro_at_some in Eq. rewrite Eq. auto. }
    cbn in *. lia. }
  eapply good_trans; [|apply wake_all_good].
  apply (good_lane [] [] l (note (EEnded c v) l)); [apply note_ok; auto|].
  intros z. unfold lane_occ; cbn. lia.
Qed.

Lemma insert_sleeper_count c f d l :
  count c (map snd (insert_sleeper f d l)) = (count c (map snd l) + eqc c d)%nat.
Proof.
  induction l as [|[g b] l IH]; cbn; auto; try lia.
  destruct (g <=? f); cbn; lia.
Qed.

Lemma serve_good e me c r x q s :
  current (fst x) = None ->
  vget _ _ (snd x) (fst c) = Some s -> coro_at _ _ s (snd c) = Some q ->
  good [] [c] x (serve _ _ cfg e me c r x).
Proof.
  intros Hc Hv Hq. destruct x as [l v]; cbn [fst snd] in *. destruct r; cbn [serve].
  - apply good_lane; [apply keep_ok|]. intros d. rewrite keep_occ; auto. cbn. lia.
  - apply good_lane; [apply enqueue_ok|]. intros d. rewrite enqueue_occ. cbn. lia.
  - destruct (frames =? 0).
    + apply good_lane; [apply enqueue_ok|]. intros d. rewrite enqueue_occ. cbn. lia.
    + apply good_lane; [apply set_sleepers_ok|]. intros d. unfold lane_occ; cbn.
      rewrite insert_sleeper_count. lia.
  - apply send_good; auto.
  - apply send_good; auto.
  - apply receive_good; auto.
  - apply receive_good; auto.
  - apply spawn_good; auto.
  - apply join_good; auto.
  - apply close_good; auto.
  - eapply finish_good; eauto.
Qed.

(* ---- A step of a lane ---- *)

Definition one (b : bool) : nat := if b then 1%nat else 0%nat.

Record step_ok (b : bool) (x y : local_state) : Prop := {
  k_pat : pat (snd y) = pat (snd x);
  k_bal : forall c, (bal c y + vlive c (snd x) = bal c x + vlive c (snd y))%nat;
  k_conserved : conserved (fst x) -> conserved (fst y);
  k_steps : steps (fst y) = steps (fst x) + N.of_nat (one b);
  k_log : nsteps (log (fst y)) = (nsteps (log (fst x)) + one b)%nat;
  k_out : out_ok (fst x) -> out_ok (fst y);
  k_clock : now (fst x) <= now (fst y);
  k_end : wave_end (fst y) = wave_end (fst x) }.

Lemma good_step out inn x y :
  good out inn x y -> (forall c, count c out = count c inn) -> step_ok false x y.
Proof.
  intros [P B [L1 L2 L3 L4 L5 L6]] H. constructor; auto.
  - intros c. specialize (B c). specialize (H c). lia.
  - rewrite L2. cbn. lia.
  - rewrite L3. cbn. lia.
Qed.

Lemma run_slice_ok e me c l v b y :
  current l = Some c -> run_slice _ _ slice cfg e me c l v = (b, y) -> step_ok b (l, v) y.
Proof.
  intros Hc. unfold run_slice.
  destruct (vget _ _ v (fst c)) as [s|] eqn:Ev.
  2:{ intros H. injection H as <- <-. eapply good_step; [apply good_refl|auto]. }
  destruct (coro_at _ _ s (snd c)) as [q|] eqn:Eq.
  2:{ intros H. injection H as <- <-. eapply good_step; [apply good_refl|auto]. }
  set (r := slice _ _ _ _).
  set (l1 := note (EStep c (r_used _ _ r)) _).
  set (s1 := set_mem _ _ _ _).
  intros H. injection H as <- <-.
  assert (G := serve_good e me c (r_request _ _ r) (l1, vset _ _ v (fst c) s1)
                 (Coro co (r_co _ _ r) (co_lane _ q) None) s1).
  destruct G as [P B [L1 L2 L3 L4 L5 L6]].
  - reflexivity.
  - eapply vget_vset; eauto.
  - unfold s1. change (coro_at _ _ (set_mem _ _ (r_mem _ _ r) ?t) ?j) with (coro_at _ _ t j).
    rewrite coro_at_upd, Nat.eqb_refl. apply coro_at_some in Eq. rewrite Eq. auto.
  - cbn [fst snd] in *.
    assert (Hp : pat (vset _ _ v (fst c) s1) = pat v) by (eapply vset_pat; eauto).
    assert (Hlive : forall d, sess_live _ _ d (fst c) s1 = sess_live _ _ d (fst c) s).
    { intros d. unfold s1.
      change (sess_live _ _ d (fst c) (set_mem _ _ (r_mem _ _ r) ?t))
        with (sess_live _ _ d (fst c) t).
      eapply live_replace; eauto. }
    assert (Hocc : forall d, sess_occ _ _ d (fst c) s1 = sess_occ _ _ d (fst c) s)
      by (intros d; reflexivity).
    constructor; cbn [fst snd].
    + congruence.
    + intros d. specialize (B d).
      assert (A1 := vset_sum (sess_occ _ _ d) v (fst c) s s1 Ev).
      assert (A2 := vset_sum (sess_live _ _ d) v (fst c) s s1 Ev).
      rewrite Hlive in A2. rewrite Hocc in A1.
      unfold bal, vocc, vlive in *; cbn [fst snd count] in *.
      assert (A3 : (lane_occ d l1 + eqc d c = lane_occ d l)%nat).
      { unfold l1, lane_occ; cbn. rewrite Hc. cbn. lia. }
      lia.
    + intros Hcons. apply L1. unfold conserved in *; cbn. lia.
    + rewrite L2. cbn. lia.
    + rewrite L3. unfold l1; cbn. rewrite nsteps_app. reflexivity.
    + intros [O1 O2]. apply L4. split; cbn; auto.
      intros i p Hp'. apply O1 in Hp'. split; [tauto|]. lia.
    + eapply N.le_trans; [|exact L5]. unfold l1, now; cbn. lia.
    + rewrite L6. auto.
Qed.

Lemma remove_nth_count d y : forall l n, nth_error l n = Some y ->
  (count d (firstn n l ++ skipn (S n) l) + eqc d y = count d l)%nat.
Proof.
  induction l as [|a l IH]; intros [|n] H; cbn [nth_error] in H; try discriminate.
  - injection H as ->. cbn. lia.
  - specialize (IH n H). cbn [firstn app count]. 
    change (skipn (S (S n)) (a :: l)) with (skipn (S n) l). lia.
Qed.

Lemma take_ready_count r c rest d :
  take_ready choose r = Some (c, rest) -> (count d rest + eqc d c = count d r)%nat.
Proof.
  unfold take_ready. destruct r as [|x r']; [discriminate|].
  destruct (nth_error (x :: r') (choose (x :: r'))) as [y|] eqn:E.
  - intros H. injection H as <- <-. apply remove_nth_count. auto.
  - intros H. injection H as <- <-. cbn. lia.
Qed.

Lemma lane_step_ok e me l v b y :
  lane_step _ _ slice choose cfg e me l v = (b, y) -> step_ok b (l, v) y.
Proof.
  unfold lane_step. destruct (wave_end l <=? now l).
  { intros H. injection H as <- <-. eapply good_step; [apply good_refl|auto]. }
  destruct (current l) as [c|] eqn:Ec; [apply run_slice_ok; auto|].
  destruct (take_ready choose (ready l)) as [[c rest]|] eqn:Et.
  2:{ intros H. injection H as <- <-. eapply good_step; [apply good_refl|auto]. }
  set (l1 := book _ _).
  assert (G : step_ok false (l, v) (l1, v)).
  { eapply good_step with (out := []) (inn := []); [|auto]. apply good_lane.
    - unfold l1. eapply lane_ok_trans; [apply set_ready_ok|].
      eapply lane_ok_trans; [apply set_run_ok|apply book_ok].
    - intros d. assert (A := take_ready_count _ _ _ d Et).
      unfold l1, lane_occ; cbn. rewrite Ec. cbn. lia. }
  destruct (wave_end l1 <=? now l1).
  { intros H. injection H as <- <-. auto. }
  intros H. apply run_slice_ok in H; [|reflexivity].
  destruct G as [P1 B1 C1 S1 G1 O1 K1 E1], H as [P2 B2 C2 S2 G2 O2 K2 E2].
  cbn [fst snd] in *. constructor; cbn [fst snd].
  - congruence.
  - intros d. specialize (B1 d). specialize (B2 d). lia.
  - auto.
  - rewrite S2, S1. cbn. lia.
  - rewrite G2, G1. cbn. lia.
  - auto.
  - lia.
  - congruence.
Qed.

End Invariants.
