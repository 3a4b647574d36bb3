(* Every state the machine reaches has each live coroutine in exactly one place and
   conserves every lane's clock; a canonical round is exactly one step. *)

From Coq Require Import List Arith NArith Lia Bool.
From Wavelock Require Import Interleave Machine.
Import ListNotations.
Local Open Scope N_scope.

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
  l_end : wave_end l' = wave_end l;
  l_charged : charged (tm l') = charged (tm l) }.

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

Lemma vset_pat (v : view) i (s s' : session) : vget _ _ v i = Some s -> pat (vset _ _ v i s') = pat
    v.
Proof.
  unfold vget, vset, pat. revert i. induction v as [|o v IH]; intros i H; destruct i; cbn in *;
      auto.
  - subst o. auto.
  - f_equal. apply IH. auto.
Qed.

Lemma vget_vset (v : view) i (s s' : session) : vget _ _ v i = Some s -> vget _ _ (vset _ _ v i s')
    i = Some s'.
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
  eqc c (i, slot) = if Nat.eqb (fst c) i then (if Nat.eqb (snd c) slot then 1%nat else 0%nat) else
      0%nat.
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
      change (coro_at _ _ (set_joins _ _ rest (set_cos _ _ (upd (snd c) None (s_cos _ _ s)) s))
          (snd d))
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
  k_end : wave_end (fst y) = wave_end (fst x);
  (* What a step charges: what its one slice used, whose bound was within the wave. *)
  k_used : if b then exists m c a bound,
             let u := r_used _ _ (slice m c a bound) in
             bound <= wave_end (fst x) - now (fst x) /\
             charged (tm (fst y)) = charged (tm (fst x)) + u /\ now (fst x) + u <= now (fst y)
           else charged (tm (fst y)) = charged (tm (fst x)) }.

Lemma good_step out inn x y :
  good out inn x y -> (forall c, count c out = count c inn) -> step_ok false x y.
Proof.
  intros [P B [L1 L2 L3 L4 L5 L6 L7]] H. constructor; auto.
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
  destruct G as [P B [L1 L2 L3 L4 L5 L6 L7]].
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
    + exists (s_mem _ _ s), (co_state _ q), (co_answer _ q),
        (N.min (left l) (wave_end l - now l)). fold r. cbn zeta.
      split; [lia|]. split; [rewrite L7; reflexivity|].
      eapply N.le_trans; [|exact L5]. unfold l1, now; cbn. lia.
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
  destruct G as [P1 B1 C1 S1 G1 O1 K1 E1 U1], H as [P2 B2 C2 S2 G2 O2 K2 E2 U2].
  cbn [fst snd] in *. constructor; cbn [fst snd].
  - congruence.
  - intros d. specialize (B1 d). specialize (B2 d). lia.
  - auto.
  - rewrite S2, S1. cbn. lia.
  - rewrite G2, G1. cbn. lia.
  - auto.
  - lia.
  - congruence.
  - destruct b; [|congruence].
    destruct U2 as (m & c' & a & bound & H1 & H2 & H3). exists m, c', a, bound. cbn zeta in *.
    rewrite <- E1 in *. split; [lia|]. split; [congruence|lia].
Qed.

(* ---- The whole machine ---- *)

Definition occ (c : cid) (st : state) : nat :=
  (sumi (fun _ l => lane_occ c l) 0 (lanes _ _ st)
   + sumi (sess_occ _ _ c) 0 (sessions _ _ st))%nat.

Definition livec (c : cid) (st : state) : nat := sumi (sess_live _ _ c) 0 (sessions _ _ st).

Definition total_steps (st : state) : nat :=
  sumi (fun _ l => N.to_nat (steps l)) 0 (lanes _ _ st).

Definition logged_steps (st : state) : nat :=
  (nsteps (history _ _ st) + sumi (fun _ l => nsteps (log l)) 0 (lanes _ _ st))%nat.

Lemma sumi_map {A B} (f : A -> B) (g : nat -> B -> nat) l : forall n,
  sumi g n (map f l) = sumi (fun i x => g i (f x)) n l.
Proof. induction l; intros n; cbn; auto. Qed.

Lemma merge_sum (f : nat -> session -> nat) vis ss : forall n v,
  pat v = pat (mask _ _ vis n ss) ->
  (sumi f n (merge _ _ vis n v ss)
   + sumi (fun i o => match o with Some s => f i s | None => 0%nat end) n (mask _ _ vis n ss)
   = sumi f n ss
   + sumi (fun i o => match o with Some s => f i s | None => 0%nat end) n v)%nat.
Proof.
  induction ss as [|s ss IH]; intros n v H; destruct v as [|o v]; cbn in H; try discriminate; auto.
  injection H as H1 H2. cbn. specialize (IH (S n) v H2).
  destruct (vis n); destruct o; try discriminate; lia.
Qed.

(* Invariants of every reachable state. *)
Definition in_wave (st : state) : bool :=
  match phase _ _ st with InWave _ => true | _ => false end.

Record inv (st : state) : Prop := {
  i_lanes : lanes _ _ st <> [];
  i_placed : forall c, occ c st = livec c st;
  i_conserved : Forall conserved (lanes _ _ st);
  i_out : Forall out_ok (lanes _ _ st);
  (* Between waves nothing is in flight (rule 42). *)
  i_quiet : in_wave st = false -> Forall (fun l => outbox l = []) (lanes _ _ st) }.

Lemma forall_upd {A} (P : A -> Prop) l i x : Forall P l -> P x -> Forall P (upd i x l).
Proof.
  intros H Hx. revert i. induction H; intros [|i]; cbn; auto.
Qed.

Lemma nth_forall {A} (P : A -> Prop) l i x : Forall P l -> nth_error l i = Some x -> P x.
Proof. intros H Hx. rewrite Forall_forall in H. apply H. eapply nth_error_In; eauto. Qed.

Lemma step_seeing_inv vis me st b st' :
  step_seeing _ _ slice choose cfg vis me st = (b, st') ->
  in_wave st = true -> inv st ->
  inv st' /\ total_steps st' = (total_steps st + one b)%nat /\
  logged_steps st' = (logged_steps st + one b)%nat /\ in_wave st' = true.
Proof.
  unfold step_seeing. intros H Hw [I1 I2 I3 I4 I5].
  destruct (nth_error (lanes _ _ st) me) as [l|] eqn:El.
  2:{ injection H as <- <-. split; [constructor; auto|]. cbn. repeat split; auto. }
  destruct (lane_step _ _ _ _ _ _ _ _ _) as [b' [l' v']] eqn:Es.
  injection H as <- <-. apply lane_step_ok in Es.
  destruct Es as [P B C S G O K E U]. cbn [fst snd] in *.
  split; [constructor; cbn|].
  - intros H0. apply I1. destruct (lanes _ _ st); auto. destruct me; discriminate.
  - intros c. specialize (I2 c). specialize (B c). unfold occ, livec in *; cbn.
    assert (A1 := sumi_upd (fun _ l => lane_occ c l) (lanes _ _ st) 0 me l l' El).
    assert (A2 := merge_sum (sess_occ _ _ c) vis (sessions _ _ st) 0 v' P).
    assert (A3 := merge_sum (sess_live _ _ c) vis (sessions _ _ st) 0 v' P).
    unfold bal, vocc, vlive in B; cbn [fst snd] in B. cbn in A1. lia.
  - apply forall_upd; auto. apply C. eapply nth_forall; eauto.
  - apply forall_upd; auto. apply O. eapply nth_forall; eauto.
  - intros Hq. unfold in_wave in *; cbn in Hq. congruence.
  - split; [|split]; auto.
    + unfold total_steps; cbn.
      assert (A1 := sumi_upd (fun _ l => N.to_nat (steps l)) (lanes _ _ st) 0 me l l' El).
      cbn in A1. rewrite S in A1. lia.
    + unfold logged_steps; cbn.
      assert (A1 := sumi_upd (fun _ l => nsteps (log l)) (lanes _ _ st) 0 me l l' El).
      cbn in A1. rewrite G in A1. lia.
Qed.

(* ---- Operations between waves ---- *)

Definition quiet_ok (l l' : lane) : Prop := lane_ok l l' /\ outbox l' = outbox l.

(* From [st] to [st'] the coroutines [out] left their places and [inn] got one. *)
Record moved (out inn : list cid) (st st' : state) : Prop := {
  mv_occ : forall c, (occ c st' + count c out + livec c st
                     = occ c st + count c inn + livec c st')%nat;
  mv_lanes : Forall2 quiet_ok (lanes _ _ st) (lanes _ _ st');
  mv_history : history _ _ st' = history _ _ st;
  mv_rest : length (sessions _ _ st') = length (sessions _ _ st) /\
           homes _ _ st' = homes _ _ st /\ phase _ _ st' = phase _ _ st /\
           frame _ _ st' = frame _ _ st /\ wave _ _ st' = wave _ _ st }.

Lemma quiet_refl l : quiet_ok l l.
Proof. split; auto using lane_ok_refl. Qed.

Lemma quiet_trans a b c : quiet_ok a b -> quiet_ok b c -> quiet_ok a c.
Proof. intros [] []. split; [eapply lane_ok_trans; eauto|congruence]. Qed.

Lemma forall2_refl {A} (R : A -> A -> Prop) : (forall x, R x x) -> forall l, Forall2 R l l.
Proof. intros H. induction l; auto. Qed.

Lemma forall2_trans {A} (R : A -> A -> Prop) :
  (forall x y z, R x y -> R y z -> R x z) ->
  forall a b c, Forall2 R a b -> Forall2 R b c -> Forall2 R a c.
Proof.
  intros HR a b c H. revert c. induction H; intros c H2; inversion H2; subst; constructor; eauto.
Qed.

Lemma moved_refl st : moved [] [] st st.
Proof. constructor; auto. apply forall2_refl. apply quiet_refl. Qed.

Lemma moved_trans o1 i1 o2 i2 a b c :
  moved o1 i1 a b -> moved o2 i2 b c -> moved (o1 ++ o2) (i1 ++ i2) a c.
Proof.
  intros [A1 A2 A3 (A4 & A5 & A6 & A7 & A8)] [B1 B2 B3 (B4 & B5 & B6 & B7 & B8)]. constructor.
  - intros z. specialize (A1 z). specialize (B1 z). rewrite !count_app. lia.
  - eapply forall2_trans; eauto. apply quiet_trans.
  - congruence.
  - repeat split; congruence.
Qed.

Lemma moved_weaken out inn out' inn' a b :
  (forall c, count c out + count c inn' = count c out' + count c inn)%nat ->
  moved out inn a b -> moved out' inn' a b.
Proof.
  intros H [A1 A2 A3 A4]. constructor; auto.
  intros c. specialize (A1 c). specialize (H c). lia.
Qed.

Lemma moved_length out inn a b : moved out inn a b -> length (lanes _ _ b) = length (lanes _ _ a).
Proof. intros [_ H _ _]. induction H; cbn; auto. Qed.

Lemma moved_nonempty out inn a b : moved out inn a b -> lanes _ _ a <> [] -> lanes _ _ b <> [].
Proof.
  intros H Ha Hb. apply moved_length in H. rewrite Hb in H. apply Ha.
  destruct (lanes _ _ a); auto. discriminate.
Qed.

Lemma forall2_upd (l : list lane) i x y :
  nth_error l i = Some x -> quiet_ok x y -> Forall2 quiet_ok l (upd i y l).
Proof.
  revert i. induction l as [|a l IH]; intros [|i] H Hq; cbn in *; try discriminate.
  - injection H as ->. constructor; auto. apply forall2_refl. apply quiet_refl.
  - constructor; eauto. apply quiet_refl.
Qed.

Lemma moved_lane out inn i f (st : state) :
  (i < length (lanes _ _ st))%nat ->
  (forall l, quiet_ok l (f l)) ->
  (forall c l, lane_occ c (f l) + count c out = lane_occ c l + count c inn)%nat ->
  moved out inn st (on_lane_at _ _ i f st).
Proof.
  intros Hi Hq Ho. unfold on_lane_at.
  destruct (nth_error (lanes _ _ st) i) as [l|] eqn:E.
  2:{ apply nth_error_None in E. lia. }
  constructor; cbn; auto.
  - intros c. unfold occ, livec; cbn. specialize (Ho c l).
    assert (A := sumi_upd (fun _ l => lane_occ c l) (lanes _ _ st) 0 i l (f l) E).
    cbn in A. lia.
  - eapply forall2_upd; eauto.
Qed.

(* An operation on a lane that moves no coroutine; the lane may not exist. *)
Lemma moved_lane0 i f (st : state) :
  (forall l, quiet_ok l (f l)) -> (forall c l, lane_occ c (f l) = lane_occ c l) ->
  moved [] [] st (on_lane_at _ _ i f st).
Proof.
  intros Hq Ho. destruct (Nat.lt_ge_cases i (length (lanes _ _ st))) as [Hi|Hi].
  - apply moved_lane; auto; intros; rewrite Ho; lia.
  - unfold on_lane_at. assert (nth_error (lanes _ _ st) i = None) as ->
      by (apply nth_error_None; auto). apply moved_refl.
Qed.

Lemma moved_session out inn i (s s' : session) (st : state) :
  nth_error (sessions _ _ st) i = Some s ->
  (forall c, sess_occ _ _ c i s' + count c out + sess_live _ _ c i s
             = sess_occ _ _ c i s + count c inn + sess_live _ _ c i s')%nat ->
  moved out inn st (set_sessions _ _ (upd i s' (sessions _ _ st)) st).
Proof.
  intros E H. constructor; cbn; auto.
  - intros c. specialize (H c). unfold occ, livec; cbn.
    assert (A := sumi_upd (sess_occ _ _ c) (sessions _ _ st) 0 i s s' E).
    assert (B := sumi_upd (sess_live _ _ c) (sessions _ _ st) 0 i s s' E).
    cbn in A, B. lia.
  - apply forall2_refl. apply quiet_refl.
  - rewrite upd_length. auto.
Qed.

Lemma lane_of_lt (st : state) c : lanes _ _ st <> [] ->
  (lane_of _ _ st c < length (lanes _ _ st))%nat.
Proof.
  intros H. assert (0 < length (lanes _ _ st))%nat.
  { destruct (lanes _ _ st); cbn; [congruence|lia]. }
  unfold lane_of. destruct (nth_error _ _); auto. destruct (coro_at _ _ _ _); auto.
  destruct (Nat.ltb_spec (co_lane _ c0) (length (lanes _ _ st))); auto.
Qed.

Lemma home_of_lt (st : state) o : lanes _ _ st <> [] ->
  (home_of _ _ st o < length (lanes _ _ st))%nat.
Proof.
  intros H. assert (0 < length (lanes _ _ st))%nat.
  { destruct (lanes _ _ st); cbn; [congruence|lia]. }
  unfold home_of. destruct (Nat.ltb_spec (home (homes _ _ st) o) (length (lanes _ _ st))); auto.
Qed.

Lemma moved_give c a (st : state) :
  moved [] [] st (on_session_at _ _ (fst c) (give _ _ (snd c) a) st).
Proof.
  unfold on_session_at. destruct (nth_error _ _) as [s|] eqn:E; [|apply moved_refl].
  eapply moved_session; eauto. intros d. rewrite give_occ, give_live. lia.
Qed.

Lemma quiet_book n l : quiet_ok l (book n l).
Proof. split; auto using book_ok. Qed.

Lemma quiet_enqueue c l : quiet_ok l (enqueue c l).
Proof. split; auto using enqueue_ok. Qed.

Lemma quiet_note e l : is_step e = false -> quiet_ok l (note e l).
Proof. split; auto using note_ok. Qed.

Lemma wake_across_moved c a (st : state) :
  lanes _ _ st <> [] -> moved [] [c] st (wake_across _ _ cfg c a st).
Proof.
  intros H. unfold wake_across.
  apply (moved_weaken ([] ++ []) ([c] ++ [])); [intros; rewrite ?count_app; cbn; lia|].
  eapply moved_trans; [|apply moved_give].
  apply moved_lane.
  - apply lane_of_lt. auto.
  - intros l. eapply quiet_trans; [apply quiet_book|].
    eapply quiet_trans; [apply quiet_enqueue|apply quiet_note; auto].
  - intros d l. unfold lane_occ; cbn. rewrite count_app. cbn. lia.
Qed.

Lemma accept_moved i (st : state) : moved [] [] st (accept _ _ cfg i st).
Proof.
  apply moved_lane0; [intros; apply quiet_book|]. intros. unfold lane_occ; cbn. auto.
Qed.

Lemma note_moved i e (st : state) : is_step e = false ->
  moved [] [] st (on_lane_at _ _ i (note e) st).
Proof.
  intros H. apply moved_lane0; [intros; apply quiet_note; auto|].
  intros. unfold lane_occ; cbn. auto.
Qed.

Lemma moved_chan out inn o k (s : session) ch ch' (st : state) :
  nth_error (sessions _ _ st) o = Some s -> nth_error (s_chans _ _ s) k = Some ch ->
  (forall c, chan_occ o c ch' + count c out = chan_occ o c ch + count c inn)%nat ->
  moved out inn st
    (set_sessions _ _ (upd o (set_chans _ _ (upd k ch' (s_chans _ _ s)) s) (sessions _ _ st)) st).
Proof.
  intros Hs Hk H. eapply moved_session; eauto. intros c. specialize (H c).
  rewrite live_chans. assert (A := occ_chans c o s k ch ch' Hk). lia.
Qed.

Lemma set_chan_moved out inn o k ch ch' (st : state) :
  chan_at _ _ st o k = Some ch ->
  (forall c, chan_occ o c ch' + count c out = chan_occ o c ch + count c inn)%nat ->
  moved out inn st (set_chan_at _ _ o k ch' st).
Proof.
  unfold chan_at, set_chan_at, on_session_at. intros Hk H.
  destruct (nth_error (sessions _ _ st) o) as [s|] eqn:Es; [|discriminate].
  eapply moved_chan; eauto.
Qed.

Lemma deliver_across_moved o k v (st : state) :
  lanes _ _ st <> [] -> moved [] [] st (deliver_across _ _ cfg o k v st).
Proof.
  intros H. unfold deliver_across.
  destruct (nth_error (sessions _ _ st) o) as [s|] eqn:Es; [|apply moved_refl].
  destruct (nth_error (s_chans _ _ s) k) as [ch|] eqn:Ek; [|apply moved_refl].
  destruct (deliver v ch) as [ch' r] eqn:Ed.
  assert (M : moved (opt_cid o r) [] st (set_sessions _ _
     (upd o (set_chans _ _ (upd k ch' (s_chans _ _ s)) s) (sessions _ _ st)) st)).
  { eapply moved_chan; eauto. intros c.
    assert (A := deliver_occ o c v ch ch' r Ed). cbn. lia. }
  destruct r as [slot|]; auto.
  apply (moved_weaken ([(o, slot)] ++ []) ([] ++ [(o, slot)])); [intros; rewrite ?count_app; cbn;
      lia|].
  eapply moved_trans; [exact M|]. apply wake_across_moved. cbn. auto.
Qed.

Lemma chan_at_lanes i f (st : state) o k :
  chan_at _ _ (on_lane_at _ _ i f st) o k = chan_at _ _ st o k.
Proof. unfold chan_at, on_lane_at. destruct (nth_error (lanes _ _ st) i); auto. Qed.

Lemma apply_effect_moved from e (st : state) :
  lanes _ _ st <> [] -> moved [] (effect_cid e) st (apply_effect _ _ cfg from e st).
Proof.
  intros H. destruct e as [o k v|o k c v|c a|c]; cbn [apply_effect effect_cid].
  - assert (M := accept_moved (home_of _ _ st o) st).
    destruct (chan_at _ _ st o k) as [ch|]; auto.
    destruct (closed ch); auto.
    apply (moved_weaken ([] ++ ([] ++ [])) ([] ++ ([] ++ []))); [intros; rewrite ?count_app; cbn;
        lia|].
    assert (M2 := note_moved (home_of _ _ st o) (EArrival from o k) _ eq_refl
                    : moved [] [] (accept _ _ cfg (home_of _ _ st o) st) _).
    eapply moved_trans; [exact M|]. eapply moved_trans; [exact M2|].
    apply deliver_across_moved.
    eapply moved_nonempty; [exact M2|]. eapply moved_nonempty; eauto.
  - assert (M := accept_moved (home_of _ _ st o) st).
    assert (Hn := moved_nonempty _ _ _ _ M H).
    apply (moved_weaken ([] ++ []) ([] ++ [c])); [intros; rewrite ?count_app; cbn; lia|].
    destruct (chan_at _ _ st o k) as [ch|] eqn:Ek.
    + destruct (closed ch); (eapply moved_trans; [exact M|]).
      * apply wake_across_moved; auto.
      * eapply set_chan_moved.
        -- unfold accept. rewrite chan_at_lanes. eauto.
        -- intros d. unfold chan_occ; cbn. rewrite map_app, count_app. cbn. lia.
    + eapply moved_trans; [exact M|]. apply wake_across_moved; auto.
  - apply (moved_weaken ([] ++ []) ([] ++ [c])); [intros; rewrite ?count_app; cbn; lia|].
    assert (M := accept_moved (lane_of _ _ st c) st).
    eapply moved_trans; [exact M|]. apply wake_across_moved. eapply moved_nonempty; eauto.
  - apply (moved_weaken ([] ++ []) ([] ++ [c])); [intros; rewrite ?count_app; cbn; lia|].
    assert (M := accept_moved (lane_of _ _ st c) st).
    eapply moved_trans; [exact M|]. apply moved_lane.
    + rewrite (moved_length _ _ _ _ M). apply lane_of_lt. auto.
    + intros l. apply quiet_enqueue.
    + intros d l. rewrite enqueue_occ. cbn. lia.
Qed.

Definition effects_cids (es : list (nat * effect)) : list cid :=
  flat_map (fun e => effect_cid (snd e)) es.

Lemma apply_all_moved es : forall (st : state),
  lanes _ _ st <> [] -> moved [] (effects_cids es) st (apply_all _ _ cfg es st).
Proof.
  induction es as [|[from e] es IH]; intros st H; cbn [apply_all]; [apply moved_refl|].
  assert (M := apply_effect_moved from e st H).
  apply (moved_weaken ([] ++ []) (effect_cid e ++ effects_cids es));
    [intros; reflexivity|].
  eapply moved_trans; [exact M|]. apply IH. eapply moved_nonempty; eauto.
Qed.

Lemma chan_at_set o k ch ch' (st : state) :
  chan_at _ _ st o k = Some ch -> chan_at _ _ (set_chan_at _ _ o k ch' st) o k = Some ch'.
Proof.
  unfold chan_at, set_chan_at, on_session_at.
  destruct (nth_error (sessions _ _ st) o) as [s|] eqn:Es; [|discriminate].
  intros H. cbn. rewrite nth_upd, Nat.eqb_refl, Es. cbn.
  rewrite nth_upd, Nat.eqb_refl, H. auto.
Qed.

Lemma admit_across_moved n : forall o k (st : state),
  lanes _ _ st <> [] -> moved [] [] st (admit_across _ _ cfg n o k st).
Proof.
  induction n as [|n IH]; intros o k st H; cbn [admit_across]; [apply moved_refl|].
  destruct (chan_at _ _ st o k) as [ch|] eqn:Ek; [|apply moved_refl].
  destruct (senders ch) as [|[c v] rest] eqn:Es; [apply moved_refl|].
  destruct (0 <? room ch); [|apply moved_refl].
  assert (M1 : moved [c] [] st (set_chan_at _ _ o k (set_senders rest ch) st)).
  { eapply set_chan_moved; eauto. intros d. unfold chan_occ; cbn. rewrite Es. cbn. lia. }
  assert (H1 := moved_nonempty _ _ _ _ M1 H).
  assert (M2 := note_moved (home_of _ _ st o) (EEntered c o k)
                  (set_chan_at _ _ o k (set_senders rest ch) st) eq_refl).
  assert (H2 := moved_nonempty _ _ _ _ M2 H1).
  assert (M3 := deliver_across_moved o k v _ H2).
  assert (H3 := moved_nonempty _ _ _ _ M3 H2).
  assert (M4 := wake_across_moved c OK _ H3).
  assert (H4 := moved_nonempty _ _ _ _ M4 H3).
  assert (M5 := IH o k _ H4).
  apply (moved_weaken ([c] ++ ([] ++ ([] ++ ([] ++ [])))) ([] ++ ([] ++ ([] ++ ([c] ++ [])))));
    [intros; rewrite ?count_app; cbn; lia|].
  repeat (eapply moved_trans; [eassumption|]). assumption.
Qed.

Lemma divide_moved o k (st : state) : moved [] [] st (divide _ _ o k st).
Proof.
  unfold divide. destruct (chan_at _ _ st o k) as [ch|] eqn:Ek; [|apply moved_refl].
  assert (M : moved [] [] st (set_chan_at _ _ o k (set_free (room ch) ch) st)).
  { eapply set_chan_moved; eauto. }
  revert M. generalize (set_chan_at _ _ o k (set_free (room ch) ch) st).
  generalize (wired ch) as w.
  intros w. induction w as [|i w IH]; intros st1 M; cbn; auto.
  apply IH. apply (moved_weaken ([] ++ []) ([] ++ [])); [intros; rewrite ?count_app; cbn; lia|].
  eapply moved_trans; [exact M|]. unfold give_credit. destruct (Nat.eqb _ _); [apply moved_refl|].
  apply moved_lane0.
  - intros l. split; auto using set_credits_ok.
  - intros c l. unfold lane_occ; cbn. auto.
Qed.

Lemma settle_moved cs : forall (st : state),
  lanes _ _ st <> [] -> moved [] [] st (fold_left (settle_channel _ _ cfg) cs st).
Proof.
  induction cs as [|[o k] cs IH]; intros st H; cbn [fold_left]; [apply moved_refl|].
  unfold settle_channel at 2. cbn [fst snd].
  assert (M1 := admit_across_moved
    (match chan_at _ _ st o k with Some ch => length (senders ch) | None => 0%nat end) o k st H).
  assert (H1 := moved_nonempty _ _ _ _ M1 H).
  assert (M2 := divide_moved o k (admit_across _ _ cfg
    (match chan_at _ _ st o k with Some ch => length (senders ch) | None => 0%nat end) o k st)).
  assert (H2 := moved_nonempty _ _ _ _ M2 H1).
  apply (moved_weaken ([] ++ ([] ++ [])) ([] ++ ([] ++ []))); [intros; rewrite ?count_app; cbn;
      lia|].
  eapply moved_trans; [exact M1|]. eapply moved_trans; [exact M2|]. apply IH; auto.
Qed.

Lemma moved_facts out inn (a b : state) : moved out inn a b ->
  total_steps b = total_steps a /\ logged_steps b = logged_steps a /\
  (Forall conserved (lanes _ _ a) -> Forall conserved (lanes _ _ b)) /\
  (Forall (fun l => outbox l = []) (lanes _ _ a) -> Forall (fun l => outbox l = []) (lanes _ _ b)).
Proof.
  intros [_ H Hh _]. unfold total_steps, logged_steps. rewrite Hh. clear Hh.
  assert (G : forall n,
    sumi (fun _ l => N.to_nat (steps l)) n (lanes _ _ b)
      = sumi (fun _ l => N.to_nat (steps l)) n (lanes _ _ a) /\
    sumi (fun _ l => nsteps (log l)) n (lanes _ _ b)
      = sumi (fun _ l => nsteps (log l)) n (lanes _ _ a)).
  { induction H as [|l l' ls ls' [[L1 L2 L3 L4 L5 L6 L7] Ho] HF IH]; intros n; cbn; auto.
    destruct (IH (S n)) as [-> ->]. rewrite L2, L3. auto. }
  destruct (G 0%nat) as [-> ->]. split; auto. split; auto. clear G.
  induction H as [|l l' ls ls' [[L1 L2 L3 L4 L5 L6 L7] Ho] HF IH]; auto.
  destruct IH as [IH1 IH2].
  split; intros HA; inversion HA; subst; constructor; auto. congruence.
Qed.

Lemma out_ok_nil l : outbox l = [] -> out_ok l.
Proof. intros H. split; rewrite H; intros [|i]; cbn; discriminate. Qed.

Lemma effects_count c ls : forall i,
  count c (effects_cids (effects_from i ls)) =
  sumi (fun _ l => count c (flat_map (fun p => effect_cid (p_effect p)) (outbox l))) i ls.
Proof.
  induction ls as [|l ls IH]; intros i; cbn; auto.
  unfold effects_cids. rewrite flat_map_app, count_app. f_equal; [|apply IH].
  unfold lane_effects. f_equal.
  induction (outbox l) as [|p r IHr]; cbn; auto. rewrite IHr. auto.
Qed.

Lemma close_wave_inv (st : state) : inv st ->
  inv (close_wave _ _ cfg st) /\
  total_steps (close_wave _ _ cfg st) = total_steps st /\
  logged_steps (close_wave _ _ cfg st) = logged_steps st.
Proof.
  intros [I1 I2 I3 I4 I5]. unfold close_wave, close_with.
  set (t := latest (lanes _ _ st)). set (es := effects_from 0 (lanes _ _ st)).
  set (st1 := set_lanes _ _ _ _).
  assert (H1 : lanes _ _ st1 <> []).
  { unfold st1; cbn. destruct (lanes _ _ st); cbn; congruence. }
  assert (M1 := apply_all_moved es st1 H1).
  set (st2 := apply_all _ _ cfg es st1) in *.
  assert (H2 := moved_nonempty _ _ _ _ M1 H1).
  assert (M2 := settle_moved (channels_of _ _ (sessions _ _ st2)) st2 H2).
  set (st3 := fold_left _ _ _) in *.
  assert (M : moved ([] ++ []) (effects_cids es ++ []) st1 st3).
  { eapply moved_trans; eauto. }
  cbn [app] in M. rewrite app_nil_r in M.
  destruct (moved_facts _ _ _ _ M) as (F1 & F2 & F3 & F4).
  assert (Q1 : Forall (fun l => outbox l = []) (lanes _ _ st1)).
  { unfold st1; cbn. apply Forall_forall. intros l Hl. apply in_map_iff in Hl.
    destruct Hl as (l0 & <- & _). auto. }
  assert (C1 : Forall conserved (lanes _ _ st1)).
  { unfold st1; cbn. apply Forall_forall. intros l Hl. apply in_map_iff in Hl.
    destruct Hl as (l0 & <- & Hl0). rewrite Forall_forall in I3. apply I3 in Hl0.
    destruct (idle_ok t l0) as [C _ _ _ _ _ _]. apply C in Hl0. exact Hl0. }
  assert (H3 := moved_nonempty _ _ _ _ M H1).
  assert (S1 : total_steps st1 = total_steps st).
  { unfold total_steps, st1; cbn. rewrite sumi_map. reflexivity. }
  assert (L1 : logged_steps st1 = logged_steps st).
  { unfold logged_steps, st1; cbn. rewrite sumi_map. reflexivity. }
  assert (O1 : forall c, (occ c st1 + count c (effects_cids es) = occ c st)%nat).
  { intros c. unfold occ, st1, es; cbn. rewrite sumi_map, effects_count.
    assert (G : forall ls n,
      (sumi (fun (_ : nat) x => lane_occ c (set_credits [] (set_outbox [] (idle_to t x)))) n ls
       + sumi (fun _ l => count c (flat_map (fun p => effect_cid (p_effect p)) (outbox l))) n ls
       = sumi (fun _ l => lane_occ c l) n ls)%nat).
    { induction ls as [|l ls IH]; intros n; cbn; auto. specialize (IH (S n)).
      unfold lane_occ at 1 3; cbn. lia. }
    specialize (G (lanes _ _ st) 0%nat). lia. }
  split; [constructor; cbn|split].
  - destruct (lanes _ _ st3); cbn; congruence.
  - intros c. destruct M as [MO _ _ _]. specialize (MO c). specialize (O1 c). specialize (I2 c).
    unfold occ in *; cbn in *. rewrite sumi_map.
    assert (E : sumi (fun (_ : nat) x => lane_occ c (set_log [] x)) 0 (lanes _ _ st3)
              = sumi (fun _ l => lane_occ c l) 0 (lanes _ _ st3)) by reflexivity.
    rewrite E. clear E.
    change (livec c st1) with (livec c st) in MO.
    unfold livec in *; cbn. lia.
  - apply Forall_forall. intros l Hl. apply in_map_iff in Hl. destruct Hl as (l0 & <- & Hl0).
    specialize (F3 C1). rewrite Forall_forall in F3. apply F3 in Hl0. exact Hl0.
  - apply Forall_forall. intros l Hl. apply in_map_iff in Hl. destruct Hl as (l0 & <- & Hl0).
    specialize (F4 Q1). rewrite Forall_forall in F4. apply F4 in Hl0. apply out_ok_nil. exact Hl0.
  - intros _. apply Forall_forall. intros l Hl. apply in_map_iff in Hl.
    destruct Hl as (l0 & <- & Hl0).
    specialize (F4 Q1). rewrite Forall_forall in F4. apply F4 in Hl0. exact Hl0.
  - unfold total_steps in *; cbn. rewrite sumi_map. cbn. rewrite <- S1, <- F1. reflexivity.
  - rewrite <- L1, <- F2. unfold logged_steps; cbn. rewrite sumi_map, nsteps_app. cbn.
    rewrite <- Nat.add_assoc. f_equal.
    clear. generalize 0%nat as n. induction (lanes _ _ st3) as [|l ls IH]; intros n; cbn; auto.
    rewrite nsteps_app. specialize (IH (S n)). change (nsteps []) with 0%nat in *. lia.
Qed.

(* A change of lanes one by one that moves no coroutine. *)
Lemma map_lanes_inv (f : lane -> lane) (st st' : state) :
  lanes _ _ st' = map f (lanes _ _ st) -> sessions _ _ st' = sessions _ _ st ->
  nsteps (history _ _ st') = nsteps (history _ _ st) -> in_wave st = false ->
  (forall l, conserved l -> conserved (f l)) ->
  (forall l, outbox (f l) = outbox l) -> (forall l, steps (f l) = steps l) ->
  (forall l, nsteps (log (f l)) = nsteps (log l)) ->
  (forall c l, lane_occ c (f l) = lane_occ c l) ->
  inv st -> inv st' /\ total_steps st' = total_steps st /\ logged_steps st' = logged_steps st.
Proof.
  intros H1 H2 H3 H4 C O S G P [I1 I2 I3 I4 I5]. specialize (I5 H4).
  assert (Q : Forall (fun l => outbox l = []) (lanes _ _ st')).
  { rewrite H1. apply Forall_forall. intros l Hl. apply in_map_iff in Hl.
    destruct Hl as (l0 & <- & Hl0). rewrite O. rewrite Forall_forall in I5. auto. }
  split; [constructor|split].
  - rewrite H1. destruct (lanes _ _ st); cbn; congruence.
  - intros c. specialize (I2 c). unfold occ, livec in *. rewrite H1, H2, sumi_map.
    rewrite (sumi_ext _ (fun _ l => lane_occ c l)); auto.
  - rewrite H1. apply Forall_forall. intros l Hl. apply in_map_iff in Hl.
    destruct Hl as (l0 & <- & Hl0). apply C. rewrite Forall_forall in I3. auto.
  - eapply Forall_impl; [|exact Q]. apply out_ok_nil.
  - auto.
  - unfold total_steps. rewrite H1, sumi_map. apply sumi_ext. intros. rewrite S. auto.
  - unfold logged_steps. rewrite H1, H3, sumi_map. f_equal. apply sumi_ext.
    intros. rewrite G. auto.
Qed.

Lemma wake_due_facts f ss : forall l, let l' := wake_due cfg f ss l in
  (conserved l -> conserved l') /\ outbox l' = outbox l /\ steps l' = steps l /\
  log l' = log l /\
  (sleepers l = [] -> forall c, lane_occ c l' = (lane_occ c l + count c (map snd ss))%nat).
Proof.
  induction ss as [|[g d] ss IH]; intros l; cbn [wake_due].
  - cbn. repeat split; auto. intros Hs c. unfold lane_occ; cbn. rewrite Hs. cbn. lia.
  - destruct (g <=? f).
    + destruct (IH (enqueue d (book (timer_cost cfg) l))) as (A & B & C & D & E).
      cbn zeta in *. repeat split.
      * intros Hc. apply A. unfold conserved in *; cbn. lia.
      * rewrite B. auto.
      * rewrite C. auto.
      * rewrite D. auto.
      * intros Hs c. rewrite E; auto. unfold lane_occ; cbn. rewrite count_app. cbn. lia.
    + cbn. repeat split; auto. intros Hs c. unfold lane_occ; cbn. rewrite Hs. cbn. lia.
Qed.

Lemma begin_frame_facts f l : let l' := begin_frame cfg f l in
  (conserved l -> conserved l') /\ outbox l' = outbox l /\ steps l' = steps l /\
  nsteps (log l') = nsteps (log l) /\ (forall c, lane_occ c l' = lane_occ c l).
Proof.
  cbn zeta. unfold begin_frame.
  set (l1 := idle_to _ l).
  destruct (wake_due_facts f (sleepers l1) (set_sleepers [] l1)) as (A & B & C & D & E).
  cbn zeta in *. set (l2 := wake_due cfg f (sleepers l1) (set_sleepers [] l1)) in *.
  assert (H : (conserved l -> conserved l2) /\ outbox l2 = outbox l /\ steps l2 = steps l /\
    nsteps (log l2) = nsteps (log l) /\ (forall c, lane_occ c l2 = lane_occ c l)).
  { split; [|split; [|split; [|split]]].
    - intros Hc. apply A. unfold conserved in *; cbn. lia.
    - rewrite B. auto.
    - rewrite C. auto.
    - rewrite D. auto.
    - intros c. rewrite E; auto. unfold lane_occ; cbn. lia. }
  destruct (Nat.eqb _ 0); auto.
  destruct H as (H1 & H2 & H3 & H4 & H5).
  destruct (note_ok (ETimers (N.of_nat (length (filter (fun s => fst s <=? f) (sleepers l))))) l2
              eq_refl) as [N1 N2 N3 _ _ _ _].
  split; [|split; [|split; [|split]]]; auto.
  rewrite N3. auto.
Qed.

Lemma set_phase_inv p (st : state) :
  (in_wave (set_phase _ _ p st) = false -> in_wave st = false) ->
  inv st -> inv (set_phase _ _ p st).
Proof. intros H [I1 I2 I3 I4 I5]. constructor; cbn; auto. Qed.

Theorem tick_inv (st st' : state) b :
  tick _ _ slice choose cfg st = (b, st') -> inv st ->
  inv st' /\ total_steps st' = (total_steps st + one b)%nat /\
  logged_steps st' = (logged_steps st + one b)%nat.
Proof.
  intros H I. unfold tick in H.
  assert (Hsame : forall p, inv st -> in_wave st = false ->
     inv (set_phase _ _ p st) /\ total_steps (set_phase _ _ p st) = (total_steps st + one false)%nat
     /\ logged_steps (set_phase _ _ p st) = (logged_steps st + one false)%nat).
  { intros p Hi Hw. split; [apply set_phase_inv; auto|].
    unfold total_steps, logged_steps; cbn. lia. }
  assert (Hplus : forall n, (n + one false)%nat = n) by (intros; cbn; lia).
  destruct (phase _ _ st) as [next| |turn|o] eqn:Ep.
  - injection H as <- <-. rewrite !Hplus. unfold enter.
    eapply map_lanes_inv with (f := fun l => if next =? 0 then l else begin_frame cfg next l);
      eauto; cbn.
    + rewrite nsteps_app. change (nsteps [EFrame next]) with 0%nat. lia.
    + unfold in_wave. rewrite Ep. auto.
    + intros l. destruct (next =? 0); auto. apply begin_frame_facts.
    + intros l. destruct (next =? 0); auto. apply begin_frame_facts.
    + intros l. destruct (next =? 0); auto. apply begin_frame_facts.
    + intros l. destruct (next =? 0); auto. apply begin_frame_facts.
    + intros c l. destruct (next =? 0); auto. apply begin_frame_facts.
  - assert (Hw : in_wave st = false) by (unfold in_wave; rewrite Ep; auto).
    destruct (forallb _ _); [injection H as <- <-; auto|].
    destruct (_ && _).
    { injection H as <- <-. rewrite !Hplus. unfold begin_wave.
      set (e := N.min _ _).
      eapply map_lanes_inv with
        (f := fun l => if has_work l then note (EWave (now l)) (set_wave_end e l) else l);
        eauto; cbn; try (intros; destruct (has_work l); auto; fail).
      intros l. destruct (has_work l); auto. cbn. rewrite nsteps_app.
      change (nsteps [EWave (now l)]) with 0%nat. lia. }
    destruct (_ && _); [injection H as <- <-; auto|].
    injection H as <- <-. unfold next_frame.
    destruct (last_frame cfg <=? frame _ _ st); [auto|]. rewrite !Hplus.
    eapply map_lanes_inv with (f := idle_to (frame_end _ _ cfg st)); eauto; cbn.
    + rewrite nsteps_app. change (nsteps [ESync (frame _ _ st)]) with 0%nat. lia.
    + intros l. apply idle_ok.
  - assert (Hw : in_wave st = true) by (unfold in_wave; rewrite Ep; auto).
    destruct (Nat.ltb turn (length (lanes _ _ st))).
    + unfold step in H. destruct (step_seeing _ _ _ _ _ _ _ _) as [b' st1] eqn:Es.
      apply step_seeing_inv in Es; auto. destruct Es as (J1 & J2 & J3 & J4).
      destruct b'; injection H as <- <-; auto.
      split; [apply set_phase_inv; auto; cbn; discriminate|]. auto.
    + injection H as <- <-. rewrite !Hplus. apply close_wave_inv. auto.
  - injection H as <- <-. rewrite !Hplus. auto.
Qed.

Inductive reachable (st0 : state) : state -> Prop :=
| reach_start : reachable st0 st0
| reach_tick st : reachable st0 st -> reachable st0 (snd (tick _ _ slice choose cfg st)).

Theorem reachable_inv st0 st : inv st0 -> reachable st0 st -> inv st.
Proof.
  intros H0 H. induction H as [|st H IH]; auto.
  destruct (tick _ _ slice choose cfg st) as [b st'] eqn:E. eapply tick_inv; eauto.
Qed.

(* A live coroutine is in exactly one place, an ended one in none. *)
Lemma livec_spec c (st : state) :
  livec c st = match nth_error (sessions _ _ st) (fst c) with
               | Some s => match coro_at _ _ s (snd c) with Some _ => 1%nat | None => 0%nat end
               | None => 0%nat
               end.
Proof.
  unfold livec.
  assert (G : forall ss n, (n <= fst c)%nat ->
    sumi (sess_live mem co c) n ss =
    match nth_error ss (fst c - n) with
    | Some s => match coro_at _ _ s (snd c) with Some _ => 1%nat | None => 0%nat end
    | None => 0%nat end).
  { induction ss as [|s ss IH]; intros n Hn; cbn [sumi].
    - destruct (fst c - n)%nat; auto.
    - unfold sess_live at 1. destruct (Nat.eqb_spec (fst c) n) as [Heq|Hne].
      + rewrite <- Heq, Nat.sub_diag. cbn [nth_error].
        assert (Hz : forall ss m, (fst c < m)%nat -> sumi (sess_live mem co c) m ss = 0%nat).
        { clear. induction ss as [|s ss IH]; intros m Hm; cbn; auto.
          rewrite IH by lia. unfold sess_live.
          destruct (Nat.eqb_spec (fst c) m); [lia|auto]. }
        rewrite Hz by lia. lia.
      + rewrite IH by lia. replace (fst c - n)%nat with (S (fst c - S n)) by lia. auto. }
  rewrite G by lia. rewrite Nat.sub_0_r. auto.
Qed.

Theorem one_place st0 st c : inv st0 -> reachable st0 st ->
  occ c st = match nth_error (sessions _ _ st) (fst c) with
             | Some s => match coro_at _ _ s (snd c) with Some _ => 1%nat | None => 0%nat end
             | None => 0%nat
             end.
Proof.
  intros H0 H. apply reachable_inv in H; auto. rewrite <- livec_spec. apply i_placed. auto.
Qed.

Theorem conservation st0 st l : inv st0 -> reachable st0 st -> In l (lanes _ _ st) ->
  charged (tm l) + overhead (tm l) + idle (tm l) = clock (tm l).
Proof.
  intros H0 H Hl. apply reachable_inv in H; auto. destruct H as [_ _ C _ _].
  rewrite Forall_forall in C. apply C in Hl. unfold conserved in Hl. auto.
Qed.

(* A canonical round is exactly one step, in the counters and in the log, or the
   run is over and nothing was run. *)
Theorem round_is_one_step fuel : forall (st st' : state) b,
  inv st -> round _ _ slice choose cfg fuel st = Some (b, st') ->
  inv st' /\ total_steps st' = (total_steps st + one b)%nat /\
  logged_steps st' = (logged_steps st + one b)%nat /\ (b = false -> is_done _ _ st' = true).
Proof.
  induction fuel as [|n IH]; intros st st' b I H; cbn [round] in H; [discriminate|].
  destruct (is_done _ _ st) eqn:Ed.
  - injection H as <- <-. cbn. repeat split; auto; try lia; apply I.
  - destruct (tick _ _ slice choose cfg st) as [b1 st1] eqn:E.
    destruct (tick_inv _ _ _ E I) as (I1 & S1 & L1).
    destruct b1.
    + injection H as <- <-. repeat split; auto; try apply I1; discriminate.
    + destruct (IH _ _ _ I1 H) as (I2 & S2 & L2 & D2). cbn in S1, L1.
      split; auto. split; [lia|]. split; [lia|auto].
Qed.

(* Rounds only make transitions of the machine. *)
Theorem round_reachable fuel : forall (st0 st st' : state) b,
  reachable st0 st -> round _ _ slice choose cfg fuel st = Some (b, st') -> reachable st0 st'.
Proof.
  induction fuel as [|n IH]; intros st0 st st' b R H; cbn [round] in H; [discriminate|].
  destruct (is_done _ _ st); [injection H as <- <-; auto|].
  assert (R1 := reach_tick _ _ R).
  destruct (tick _ _ slice choose cfg st) as [b1 st1]. cbn in R1.
  destruct b1; [injection H as <- <-; auto|eauto].
Qed.

(* ---- The start ---- *)

Lemma publish_moved is_ : forall st : state, lanes _ _ st <> [] ->
  moved [] (map (fun i => (i, 0%nat)) is_) st (fold_left (publish _ _) is_ st).
Proof.
  induction is_ as [|i is_ IH]; intros st H; cbn [fold_left map]; [apply moved_refl|].
  assert (M : moved [] [(i, 0%nat)] st (publish _ _ st i)).
  { apply moved_lane.
    - apply lane_of_lt. auto.
    - intros l. apply quiet_enqueue.
    - intros d l. rewrite enqueue_occ. cbn. lia. }
  apply (moved_weaken ([] ++ []) ([(i, 0%nat)] ++ map (fun i => (i, 0%nat)) is_));
    [intros; reflexivity|].
  eapply moved_trans; [exact M|]. apply IH. eapply moved_nonempty; eauto.
Qed.

Lemma divides_moved cs : forall st : state,
  moved [] [] st (fold_left (fun st ok => divide _ _ (fst ok) (snd ok) st) cs st).
Proof.
  induction cs as [|c cs IH]; intros st; cbn [fold_left]; [apply moved_refl|].
  apply (moved_weaken ([] ++ []) ([] ++ [])); [reflexivity|].
  eapply moved_trans; [apply divide_moved|apply IH].
Qed.

Lemma count_first c n : forall k,
  count c (map (fun i => (i, 0%nat)) (seq k n)) =
  (if (Nat.leb k (fst c) && Nat.ltb (fst c) (k + n)) then
     if Nat.eqb (snd c) 0 then 1 else 0 else 0)%nat.
Proof.
  induction n as [|n IH]; intros k; cbn [seq map count].
  - destruct (Nat.leb_spec k (fst c)), (Nat.ltb_spec (fst c) (k + 0)); cbn; auto; lia.
  - rewrite IH, eqc_pair.
    destruct (Nat.eqb_spec (fst c) k), (Nat.leb_spec k (fst c)), (Nat.leb_spec (S k) (fst c)),
      (Nat.ltb_spec (fst c) (k + S n)), (Nat.ltb_spec (fst c) (S k + n)); cbn; try lia;
      destruct (snd c); cbn; lia.
Qed.

(* The invariants hold at the start, so they hold in every run. *)
Theorem boot_inv nl (ps : list (program mem co)) : (0 < nl)%nat -> inv (boot _ _ nl ps).
Proof.
  intros Hnl. unfold boot.
  set (st0 := load _ _ nl ps).
  assert (N0 : lanes _ _ st0 <> []) by (destruct nl; [lia|discriminate]).
  assert (M1 := divides_moved (channels_of _ _ (map (first_session _ _) ps)) st0).
  set (st1 := fold_left _ _ st0) in *.
  assert (N1 := moved_nonempty _ _ _ _ M1 N0).
  assert (M2 := publish_moved (seq 0 (length ps)) st1 N1).
  set (st2 := fold_left _ _ st1) in *.
  assert (M : moved ([] ++ []) ([] ++ map (fun i => (i, 0%nat)) (seq 0 (length ps))) st0 st2)
    by (eapply moved_trans; eauto).
  cbn [app] in M.
  destruct (moved_facts _ _ _ _ M) as (_ & _ & C & Q).
  assert (Q0 : Forall (fun l => outbox l = []) (lanes _ _ st0)).
  { apply Forall_forall. intros l Hl. apply repeat_spec in Hl. subst. auto. }
  specialize (Q Q0).
  assert (O0 : forall c, occ c st0 = 0%nat).
  { intros c. unfold occ; cbn.
    assert (A : forall n k, sumi (fun (_ : nat) l => lane_occ c l) k (repeat empty_lane n) = 0%nat).
    { induction n; intros k; cbn; auto. rewrite IHn. auto. }
    assert (B : forall qs k, sumi (sess_occ mem co c) k (map (first_session _ _) qs) = 0%nat).
    { induction qs as [|q qs IH]; intros k; cbn; auto. rewrite IH.
      unfold sess_occ; cbn. rewrite sumi_map.
      assert (D : forall cs j, sumi (fun (_ : nat) (x : N * list nat) =>
         chan_occ k c (Chan (fst x) [] [] [] (snd x) 0 false)) j cs = 0%nat).
      { induction cs; intros j; cbn; auto. rewrite IHcs. auto. }
      rewrite D. auto. }
    rewrite A, B. auto. }
  constructor; auto.
  - eapply moved_nonempty; eauto.
  - intros c. destruct M as [MO _ _ _]. specialize (MO c). rewrite O0 in MO.
    assert (E : livec c st0 = count c (map (fun i => (i, 0%nat)) (seq 0 (length ps)))).
    { rewrite livec_spec, count_first. cbn [st0 load sessions]. rewrite nth_error_map.
      change (Nat.leb 0 (fst c)) with true. change (0 + length ps)%nat with (length ps).
      cbn [andb].
      destruct (nth_error ps (fst c)) as [p|] eqn:E.
      - assert (H : (fst c < length ps)%nat) by (apply nth_error_Some; congruence).
        apply Nat.ltb_lt in H. rewrite H. cbn [option_map]. unfold first_session, coro_at; cbn.
        destruct (snd c) as [|[|n]]; reflexivity.
      - apply nth_error_None in E. apply Nat.ltb_ge in E. rewrite E. reflexivity. }
    change (count c []) with 0%nat in MO. lia.
  - apply C. apply Forall_forall. intros l Hl. apply repeat_spec in Hl. subst. reflexivity.
  - eapply Forall_impl; [|exact Q]. apply out_ok_nil.
Qed.

(* Theorem 1 for every machine from its start. *)
Theorem every_run_is_placed_and_conserved nl (ps : list (program mem co)) n :
  (0 < nl)%nat -> let st := run _ _ slice choose cfg n (boot _ _ nl ps) in
  (forall c, occ c st = match nth_error (sessions _ _ st) (fst c) with
     | Some s => match coro_at _ _ s (snd c) with Some _ => 1%nat | None => 0%nat end
     | None => 0%nat
     end) /\
  (forall l, In l (lanes _ _ st) ->
     charged (tm l) + overhead (tm l) + idle (tm l) = clock (tm l)).
Proof.
  intros Hnl st.
  assert (R : reachable (boot _ _ nl ps) st).
  { unfold st. generalize (reach_start (boot mem co nl ps)).
    generalize (boot mem co nl ps) at 2 4 as s. induction n; intros s R; cbn; auto.
    apply IHn. apply reach_tick. auto. }
  split.
  - intros c. eapply one_place; eauto using boot_inv.
  - intros l Hl. eapply conservation; eauto using boot_inv.
Qed.

End Invariants.
