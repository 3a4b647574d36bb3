(* Interleavings of groups with disjoint footprints.

   A store holds cells at positions. An action is local to a footprint (a set of
   positions) when it writes nothing outside it and its result depends on nothing
   outside it. A group is a set of lanes that one worker runs in lane order. This
   file proves, for any store and any local lane actions, that every complete
   interleaving of groups with disjoint footprints ends in the store of the
   canonical run, which runs all lanes in lane order. Waves.v applies it to the
   machine. *)

From Coq Require Import List Arith Lia Bool.
Import ListNotations.

Section Interleave.

Variables (store position value shape_t : Type).
Variable get : store -> position -> option value.
(* What no action of a wave changes and every action may read: the numbers of
   lanes and sessions, the wiring, the wave's number. *)
Variable shape : store -> shape_t.
Hypothesis get_ext : forall c d,
  shape c = shape d -> (forall p, get c p = get d p) -> c = d.

Definition footprint := position -> bool.

Definition agree (F : footprint) (c d : store) : Prop :=
  shape c = shape d /\ forall p, F p = true -> get c p = get d p.

Definition inside (F : footprint) (f : store -> bool * store) : Prop :=
  (forall c, shape (snd (f c)) = shape c) /\
  (forall c p, F p = false -> get (snd (f c)) p = get c p).

(* The result depends on the footprint only, for stores of the shape of [c0]. *)
Definition reads_only (F : footprint) (f : store -> bool * store) : Prop :=
  forall c d, agree F c d ->
    fst (f c) = fst (f d) /\ agree F (snd (f c)) (snd (f d)).

Definition local F f := inside F f /\ reads_only F f.

Lemma agree_refl F c : agree F c c.
Proof. split; auto. Qed.

Lemma agree_sym F c d : agree F c d -> agree F d c.
Proof. intros [H1 H2]. split; auto. intros. symmetry. auto. Qed.

Lemma agree_trans F c d e : agree F c d -> agree F d e -> agree F c e.
Proof.
  intros [H1 H2] [H3 H4]. split; [congruence|].
  intros. rewrite H2, H4; auto.
Qed.

Lemma agree_weaken (F G : footprint) c d :
  (forall p, F p = true -> G p = true) -> agree G c d -> agree F c d.
Proof. intros H [H1 H2]. split; auto. Qed.

Lemma local_weaken (F G : footprint) f :
  (forall p, F p = true -> G p = true) -> local F f -> local G f.
Proof.
  intros H [[Hs Hw] Hr]. split.
  - split; auto. intros c p HG. apply Hw.
    destruct (F p) eqn:E; auto. apply H in E. congruence.
  - intros c d Hcd.
    destruct (Hr c d) as [H1 [H2 H3]].
    { eapply agree_weaken; eauto. }
    split; auto. split; auto.
    intros p Hp. destruct (F p) eqn:E; auto.
    rewrite !Hw; auto. apply Hcd; auto.
Qed.

(* [step l] is one step of lane [l]; [false]: the lane has none left. *)
Variable step : nat -> store -> bool * store.

(* One move of the lanes still to run, in order. *)
Definition move (tc : list nat * store) : list nat * store :=
  match fst tc with
  | [] => tc
  | l :: rest =>
      let (b, c') := step l (snd tc) in
      if b then (l :: rest, c') else (rest, c')
  end.

Fixpoint iter (n : nat) (tc : list nat * store) : list nat * store :=
  match n with 0 => tc | S m => move (iter m tc) end.

Lemma iter_done n m tc :
  fst (iter n tc) = [] -> n <= m -> iter m tc = iter n tc.
Proof.
  intros H Hle. induction Hle as [|m Hle IH]; auto.
  simpl. rewrite IH. unfold move. rewrite H. auto.
Qed.

Lemma iter_shift n tc : iter (S n) tc = iter n (move tc).
Proof. induction n; simpl in *; auto. rewrite <- IHn. auto. Qed.

Definition group_footprint (foot : nat -> footprint) (g : nat -> bool) (ls : list nat)
  : footprint :=
  fun p => existsb (fun l => foot l p) (filter g ls).

(* A move of a group is local to its footprint. *)
Lemma move_local F tc td :
  (forall l, In l (fst tc) -> local F (step l)) ->
  fst tc = fst td -> agree F (snd tc) (snd td) ->
  fst (move tc) = fst (move td) /\ agree F (snd (move tc)) (snd (move td)).
Proof.
  destruct tc as [t c], td as [t' d]; simpl. intros Hl <- Ha.
  destruct t as [|l rest]; [split; auto|].
  destruct (Hl l (or_introl eq_refl)) as [_ Hr].
  specialize (Hr c d Ha). unfold move; cbn [fst snd].
  destruct (step l c) as [b c'], (step l d) as [b' d']. cbn [fst snd] in Hr.
  destruct Hr as [-> Hr]. destruct b'; cbn [fst snd]; auto.
Qed.

Lemma move_inside F tc :
  (forall l, In l (fst tc) -> local F (step l)) ->
  shape (snd (move tc)) = shape (snd tc) /\
  (forall p, F p = false -> get (snd (move tc)) p = get (snd tc) p).
Proof.
  destruct tc as [t c]; simpl. intros Hl.
  destruct t as [|l rest]; [split; auto|].
  destruct (Hl l (or_introl eq_refl)) as [[Hs Hw] _].
  specialize (Hs c). specialize (Hw c). unfold move; cbn [fst snd].
  destruct (step l c) as [b c']. cbn [fst snd] in *. destruct b; cbn [fst snd]; auto.
Qed.

Lemma move_subset tc l : In l (fst (move tc)) -> In l (fst tc).
Proof.
  destruct tc as [t c]. destruct t as [|x rest]; simpl; auto.
  unfold move; simpl. destruct (step x c) as [b c']. destruct b; simpl; auto.
Qed.

Lemma iter_subset n tc l : In l (fst (iter n tc)) -> In l (fst tc).
Proof. induction n; simpl; auto. intros H. apply move_subset in H. auto. Qed.

(* Interleavings: a schedule names, move by move, the group that moves. *)
Definition world := (list (list nat) * store)%type.

Fixpoint upd {A} (k : nat) (x : A) (l : list A) : list A :=
  match l, k with
  | [], _ => []
  | _ :: r, 0 => x :: r
  | y :: r, S k => y :: upd k x r
  end.

Lemma upd_length {A} k (x : A) l : length (upd k x l) = length l.
Proof. revert k; induction l; destruct k; simpl; auto. Qed.

Lemma nth_upd {A} k j (x : A) l :
  nth_error (upd k x l) j =
  if Nat.eqb k j then option_map (fun _ => x) (nth_error l j) else nth_error l j.
Proof.
  revert k j; induction l; intros k j; destruct k, j; simpl; auto.
  destruct (Nat.eqb k j); auto.
Qed.

Lemma upd_same {A} k (x : A) l : nth_error l k = Some x -> upd k x l = l.
Proof.
  revert k; induction l; destruct k; simpl; intros H; auto; try discriminate.
  - inversion H; auto.
  - f_equal; auto.
Qed.

Definition pick_move (w : world) (k : nat) : world :=
  match nth_error (fst w) k with
  | None => w
  | Some t => let (t', c') := move (t, snd w) in (upd k t' (fst w), c')
  end.

Definition exec (sched : list nat) (w : world) : world := fold_left pick_move sched w.

Definition complete (w : world) : Prop := Forall (fun t => t = []) (fst w).

(* The footprints [Fs] of the groups are disjoint. *)
Definition disjoint (Fs : list footprint) : Prop :=
  forall i j Fi Fj p, nth_error Fs i = Some Fi -> nth_error Fs j = Some Fj ->
    i <> j -> Fi p = true -> Fj p = true -> False.

(* Each group's part of the store is what the group alone would have made of it. *)
Lemma exec_projects (ts : list (list nat)) (Fs : list footprint) (c0 : store) sched :
  length Fs = length ts ->
  (forall k t F, nth_error ts k = Some t -> nth_error Fs k = Some F ->
     forall l, In l t -> local F (step l)) ->
  disjoint Fs ->
  let w := exec sched (ts, c0) in
  length (fst w) = length ts /\
  shape (snd w) = shape c0 /\
  (forall p, (forall k F, nth_error Fs k = Some F -> F p = false) ->
     get (snd w) p = get c0 p) /\
  (forall k t F, nth_error ts k = Some t -> nth_error Fs k = Some F ->
     exists n, nth_error (fst w) k = Some (fst (iter n (t, c0))) /\
               agree F (snd w) (snd (iter n (t, c0)))).
Proof.
  intros Hlen Hloc Hdis.
  induction sched as [|k sched IH] using rev_ind; simpl.
  - repeat split; auto. intros k t F Ht HF. exists 0. simpl. split; auto using agree_refl.
  - unfold exec in *. rewrite fold_left_app. simpl.
    set (w := fold_left pick_move sched (ts, c0)) in *.
    destruct IH as (IHl & IHs & IHo & IHg).
    unfold pick_move. destruct (nth_error (fst w) k) as [t|] eqn:Et.
    2:{ repeat split; auto. }
    assert (Hk : k < length ts).
    { rewrite <- IHl. apply nth_error_Some. congruence. }
    destruct (nth_error ts k) as [t0|] eqn:Et0.
    2:{ apply nth_error_None in Et0. lia. }
    destruct (nth_error Fs k) as [F|] eqn:EF.
    2:{ apply nth_error_None in EF. lia. }
    destruct (IHg k t0 F Et0 EF) as (n & Hn & Ha).
    assert (Hlt : forall l, In l (fst (t, snd w)) -> local F (step l)).
    { simpl. intros l Hl. eapply Hloc; eauto.
      assert (t = fst (iter n (t0, c0))) by congruence. subst t.
      apply iter_subset in Hl. auto. }
    destruct (move_inside F (t, snd w) Hlt) as [Hms Hmw].
    assert (Hmm := move_local F (t, snd w) (iter n (t0, c0)) Hlt).
    simpl in Hmm. rewrite Et in Hn. injection Hn as Hn.
    specialize (Hmm Hn Ha).
    destruct (move (t, snd w)) as [t' c'] eqn:Em. simpl in *.
    repeat split.
    + rewrite upd_length. auto.
    + congruence.
    + intros p Hp. rewrite Hmw; eauto.
    + intros j tj Fj Htj HFj. rewrite nth_upd.
      destruct (Nat.eqb_spec k j) as [->|Hne].
      * rewrite Et0 in Htj. injection Htj as <-. rewrite EF in HFj. injection HFj as <-.
        exists (S n). rewrite Et. simpl. destruct Hmm as [Hm1 Hm2].
        split; [f_equal; auto|auto].
      * destruct (IHg j tj Fj Htj HFj) as (m & Hm & Hma).
        exists m. split; auto.
        eapply agree_trans; [|eauto].
        split; auto. intros p Hp.
        apply Hmw. destruct (F p) eqn:EFp; auto.
        exfalso. eapply (Hdis k j); eauto.
Qed.

(* Two complete interleavings end in the same store. *)
Theorem complete_unique ts Fs c0 s1 s2 :
  length Fs = length ts ->
  (forall k t F, nth_error ts k = Some t -> nth_error Fs k = Some F ->
     forall l, In l t -> local F (step l)) ->
  disjoint Fs ->
  complete (exec s1 (ts, c0)) -> complete (exec s2 (ts, c0)) ->
  snd (exec s1 (ts, c0)) = snd (exec s2 (ts, c0)).
Proof.
  intros Hlen Hloc Hdis H1 H2.
  destruct (exec_projects ts Fs c0 s1 Hlen Hloc Hdis) as (L1 & S1 & O1 & G1).
  destruct (exec_projects ts Fs c0 s2 Hlen Hloc Hdis) as (L2 & S2 & O2 & G2).
  apply get_ext; [congruence|].
  intros p.
  destruct (existsb (fun F : footprint => F p) Fs) eqn:E.
  - apply existsb_exists in E. destruct E as (F & HF & Hp).
    apply In_nth_error in HF. destruct HF as [k Hk].
    assert (Hkt : k < length ts).
    { rewrite <- Hlen. apply nth_error_Some. congruence. }
    destruct (nth_error ts k) as [t|] eqn:Et.
    2:{ apply nth_error_None in Et. lia. }
    destruct (G1 k t F Et Hk) as (n & Hn & An).
    destruct (G2 k t F Et Hk) as (m & Hm & Am).
    unfold complete in *. rewrite Forall_forall in H1, H2.
    apply nth_error_In in Hn. apply H1 in Hn.
    apply nth_error_In in Hm. apply H2 in Hm.
    assert (Heq : iter n (t, c0) = iter m (t, c0)).
    { destruct (Nat.le_ge_cases n m) as [Hle|Hle].
      - symmetry. apply iter_done; auto.
      - apply iter_done; auto. }
    rewrite <- Heq in Am.
    destruct An as [_ An], Am as [_ Am].
    rewrite An, Am; auto.
  - rewrite O1, O2; auto.
    + intros k F HF. destruct (F p) eqn:EF; auto.
      assert (existsb (fun F : footprint => F p) Fs = true); [|congruence].
      apply existsb_exists. exists F. split; auto. eapply nth_error_In; eauto.
    + intros k F HF. destruct (F p) eqn:EF; auto.
      assert (existsb (fun F : footprint => F p) Fs = true); [|congruence].
      apply existsb_exists. exists F. split; auto. eapply nth_error_In; eauto.
Qed.

(* The canonical run of the lanes [ls] is itself an interleaving of the groups,
   if each lane is in one group or has nothing to do. *)
Lemma canonical_is_a_schedule (gs : list (nat -> bool)) n :
  forall ls c cf,
  (forall i j gi gj l, nth_error gs i = Some gi -> nth_error gs j = Some gj ->
     In l ls -> gi l = true -> gj l = true -> i = j) ->
  (forall l, In l ls -> (forall g, In g gs -> g l = false) ->
     forall m, step l (snd (iter m (ls, c))) = (false, snd (iter m (ls, c)))) ->
  iter n (ls, c) = ([], cf) ->
  exists sched, exec sched (map (fun g => filter g ls) gs, c)
                = (map (fun _ => []) gs, cf).
Proof.
  induction n as [|n IH]; intros ls c cf Huniq Hidle Hrun.
  - simpl in Hrun. inversion Hrun; subst. exists []. simpl. auto.
  - destruct ls as [|l rest].
    { assert (cf = c).
      { rewrite (iter_done 0 (S n)) in Hrun; simpl; auto; try lia.
        simpl in Hrun. congruence. }
      subst. exists []. simpl. auto. }
    rewrite iter_shift in Hrun.
    destruct (existsb (fun g : nat -> bool => g l) gs) eqn:E.
    + apply existsb_exists in E. destruct E as (g & Hg & Hl).
      apply In_nth_error in Hg. destruct Hg as [k Hk].
      assert (Hmk : nth_error (map (fun g => filter g (l :: rest)) gs) k
                    = Some (l :: filter g rest)).
      { rewrite nth_error_map, Hk. simpl. rewrite Hl. auto. }
      assert (Hother : forall t', upd k t' (map (fun g => filter g (l :: rest)) gs)
                       = upd k t' (map (fun g => filter g rest) gs)).
      { intros t'.
        assert (Hext : forall (A : Type) (x y : list A),
                   (forall j, nth_error x j = nth_error y j) -> x = y).
        { intros A x. induction x as [|a x IHx]; intros [|b y] Hxy; auto.
          - specialize (Hxy 0). discriminate.
          - specialize (Hxy 0). discriminate.
          - f_equal. { specialize (Hxy 0). simpl in Hxy. congruence. }
            apply IHx. intros j. apply (Hxy (S j)). }
        apply Hext. intros j. rewrite !nth_upd, !nth_error_map.
        destruct (Nat.eqb_spec k j) as [->|Hne].
        - rewrite Hk. auto.
        - destruct (nth_error gs j) as [gj|] eqn:Ej; simpl; auto.
          destruct (gj l) eqn:El; auto.
          exfalso. apply Hne. eapply Huniq; eauto. left; auto. }
      unfold move in Hrun. simpl in Hrun.
      destruct (step l c) as [b c'] eqn:Es.
      assert (Hstep : exec [k] (map (fun g => filter g (l :: rest)) gs, c) =
               if b then (map (fun g => filter g (l :: rest)) gs, c')
               else (map (fun g => filter g rest) gs, c')).
      { unfold exec. cbn [fold_left]. unfold pick_move. cbn [fst snd]. rewrite Hmk.
        unfold move. cbn [fst snd]. rewrite Es.
        destruct b.
        - f_equal. apply upd_same. auto.
        - f_equal. rewrite Hother. apply upd_same.
          rewrite nth_error_map, Hk. auto. }
      assert (Hidle' : forall l', In l' (fst (move (l :: rest, c))) ->
        (forall g, In g gs -> g l' = false) ->
        forall m, step l' (snd (iter m (move (l :: rest, c))))
                  = (false, snd (iter m (move (l :: rest, c))))).
      { intros l' Hl' Hg' m. rewrite <- iter_shift. apply Hidle; auto.
        apply move_subset in Hl'. auto. }
      unfold move in Hidle'. cbn [fst snd] in Hidle'. rewrite Es in Hidle'.
      destruct b.
      * destruct (IH (l :: rest) c' cf) as [sched Hs]; auto.
        exists (k :: sched). change (k :: sched) with ([k] ++ sched).
        unfold exec in *. rewrite fold_left_app, Hstep. auto.
      * destruct (IH rest c' cf) as [sched Hs]; auto.
        { intros i j gi gj l' Hi Hj Hin. eapply Huniq; eauto. right; auto. }
        exists (k :: sched). change (k :: sched) with ([k] ++ sched).
        unfold exec in *. rewrite fold_left_app, Hstep. auto.
    + assert (Hnone : forall g, In g gs -> g l = false).
      { intros g Hg. destruct (g l) eqn:El; auto.
        assert (existsb (fun g : nat -> bool => g l) gs = true); [|congruence].
        apply existsb_exists. eauto. }
      assert (Hs := Hidle l (or_introl eq_refl) Hnone 0). simpl in Hs.
      assert (Hidle' : forall l', In l' (fst (move (l :: rest, c))) ->
        (forall g, In g gs -> g l' = false) ->
        forall m, step l' (snd (iter m (move (l :: rest, c))))
                  = (false, snd (iter m (move (l :: rest, c))))).
      { intros l' Hl' Hg' m. rewrite <- iter_shift. apply Hidle; auto.
        apply move_subset in Hl'. auto. }
      unfold move in Hrun, Hidle'. cbn [fst snd] in Hrun, Hidle'.
      rewrite Hs in Hrun, Hidle'.
      destruct (IH rest c cf) as [sched Hsch]; auto.
      { intros i j gi gj l' Hi Hj Hin. eapply Huniq; eauto. right; auto. }
      exists sched. rewrite <- Hsch. do 2 f_equal.
      apply map_ext_in. intros g Hg. simpl. rewrite (Hnone g Hg). auto.
Qed.

(* Every complete interleaving is the canonical run. *)
Theorem interleaving_is_canonical (gs : list (nat -> bool)) Fs ls c0 n cf sched :
  length Fs = length gs ->
  (forall k g F, nth_error gs k = Some g -> nth_error Fs k = Some F ->
     forall l, In l ls -> g l = true -> local F (step l)) ->
  disjoint Fs ->
  (forall i j gi gj l, nth_error gs i = Some gi -> nth_error gs j = Some gj ->
     In l ls -> gi l = true -> gj l = true -> i = j) ->
  (forall l, In l ls -> (forall g, In g gs -> g l = false) ->
     forall m, step l (snd (iter m (ls, c0))) = (false, snd (iter m (ls, c0)))) ->
  iter n (ls, c0) = ([], cf) ->
  complete (exec sched (map (fun g => filter g ls) gs, c0)) ->
  snd (exec sched (map (fun g => filter g ls) gs, c0)) = cf.
Proof.
  intros Hlen Hloc Hdis Huniq Hidle Hrun Hc.
  destruct (canonical_is_a_schedule gs n ls c0 cf Huniq Hidle Hrun) as [s Hs].
  assert (H : snd (exec s (map (fun g => filter g ls) gs, c0)) = cf) by (rewrite Hs; auto).
  rewrite <- H.
  apply (complete_unique _ Fs); auto.
  - rewrite map_length. auto.
  - intros k t F Ht HF l Hl. rewrite nth_error_map in Ht.
    destruct (nth_error gs k) as [g|] eqn:Eg; try discriminate. simpl in Ht.
    injection Ht as <-. apply filter_In in Hl. destruct Hl. eapply Hloc; eauto.
  - rewrite Hs. unfold complete. simpl. apply Forall_forall.
    intros t Ht. apply in_map_iff in Ht. destruct Ht as (? & <- & _). auto.
Qed.

(* If the groups can be run to their end, so can the canonical run. *)
Lemma canonical_ends (gs : list (nat -> bool)) Fs :
  length Fs = length gs -> disjoint Fs ->
  forall ls c,
  (forall k g F, nth_error gs k = Some g -> nth_error Fs k = Some F ->
     forall l, In l ls -> g l = true -> local F (step l)) ->
  (forall k g F, nth_error gs k = Some g -> nth_error Fs k = Some F ->
     exists d N, agree F c d /\ fst (iter N (filter g ls, d)) = []) ->
  (forall i j gi gj l, nth_error gs i = Some gi -> nth_error gs j = Some gj ->
     In l ls -> gi l = true -> gj l = true -> i = j) ->
  (forall l, In l ls -> (forall g, In g gs -> g l = false) ->
     forall m, step l (snd (iter m (ls, c))) = (false, snd (iter m (ls, c)))) ->
  exists n, fst (iter n (ls, c)) = [].
Proof.
  intros Hlen Hdis. induction ls as [|l r IH]; intros c Hloc Hsolo Huniq Hidle.
  { exists 0. auto. }
  assert (Hloc' : forall k g F, nth_error gs k = Some g -> nth_error Fs k = Some F ->
     forall l, In l r -> g l = true -> local F (step l)).
  { intros. eapply Hloc; eauto. right; auto. }
  assert (Huniq' : forall i j gi gj l, nth_error gs i = Some gi -> nth_error gs j = Some gj ->
     In l r -> gi l = true -> gj l = true -> i = j).
  { intros i j gi gj l' Hi Hj Hin. eapply Huniq; eauto. right; auto. }
  destruct (existsb (fun g : nat -> bool => g l) gs) eqn:E.
  - apply existsb_exists in E. destruct E as (g & Hg & Hl).
    apply In_nth_error in Hg. destruct Hg as [k Hk].
    destruct (nth_error Fs k) as [F|] eqn:EF.
    2:{ apply nth_error_None in EF. assert (k < length gs) by (apply nth_error_Some; congruence).
        lia. }
    destruct (Hsolo k g F Hk EF) as (d & N & Ha & HN).
    assert (Hfl : filter g (l :: r) = l :: filter g r) by (simpl; rewrite Hl; auto).
    rewrite Hfl in HN.
    assert (Hll : local F (step l)) by (eapply Hloc; eauto; left; auto).
    revert c d Ha HN Hsolo Hidle. induction N as [|N IHN]; intros c d Ha HN Hsolo Hidle.
    { simpl in HN. discriminate. }
    rewrite iter_shift in HN.
    destruct Hll as [[Hs Hw] Hr]. specialize (Hr c d Ha).
    specialize (Hs c). specialize (Hw c).
    unfold move in HN. cbn [fst snd] in HN.
    assert (Hmove : move (l :: r, c) = if fst (step l c) then (l :: r, snd (step l c))
                                       else (r, snd (step l c))).
    { unfold move. cbn [fst snd]. destruct (step l c) as [[] ?]; auto. }
    assert (Hidle' : forall l', In l' (fst (move (l :: r, c))) ->
        (forall g, In g gs -> g l' = false) ->
        forall m, step l' (snd (iter m (move (l :: r, c))))
                  = (false, snd (iter m (move (l :: r, c))))).
    { intros l' Hl' Hg' m. rewrite <- iter_shift. apply Hidle; auto.
      apply move_subset in Hl'. auto. }
    destruct (step l d) as [b d']. cbn [fst snd] in *. destruct Hr as [Hb Hagree].
    assert (Hsolo' : forall x, x = l :: r \/ (x = r /\ b = false) ->
      (forall t, t = filter g x -> fst (iter N (t, d')) = []) ->
      forall k g F, nth_error gs k = Some g -> nth_error Fs k = Some F ->
        exists d0 N0, agree F (snd (step l c)) d0 /\ fst (iter N0 (filter g x, d0)) = []).
    { intros x Hx Hend j gj Fj Hj HFj. destruct (Nat.eq_dec j k) as [->|Hne].
      - rewrite Hk in Hj. injection Hj as <-. rewrite EF in HFj. injection HFj as <-.
        exists d', N. split; auto.
      - destruct (Hsolo j gj Fj Hj HFj) as (dj & Nj & Haj & HNj).
        exists dj, Nj. split.
        + eapply agree_trans; [|exact Haj]. split; auto. intros p Hp.
          apply Hw. destruct (F p) eqn:EFp; auto. exfalso. eapply (Hdis k j); eauto.
        + destruct Hx as [->|[-> _]]; auto.
          simpl in HNj. destruct (gj l) eqn:Egj; auto.
          exfalso. apply Hne. eapply Huniq; eauto. left; auto. }
    rewrite Hmove, Hb in Hidle'. rewrite Hb in Hmove.
    destruct b; cbn [fst snd] in *.
    + destruct (IHN (snd (step l c)) d') as [n Hn]; auto.
      { apply Hsolo'; auto. intros t ->. rewrite Hfl. auto. }
      exists (S n). rewrite iter_shift, Hmove. auto.
    + destruct (IH (snd (step l c))) as [n Hn]; auto.
      { apply Hsolo'; auto. intros t ->. auto. }
      exists (S n). rewrite iter_shift, Hmove. auto.
  - assert (Hnone : forall g, In g gs -> g l = false).
    { intros g Hg. destruct (g l) eqn:El; auto.
      assert (existsb (fun g : nat -> bool => g l) gs = true); [|congruence].
      apply existsb_exists. eauto. }
    assert (Hs := Hidle l (or_introl eq_refl) Hnone 0). simpl in Hs.
    assert (Hmove : move (l :: r, c) = (r, c)).
    { unfold move. cbn [fst snd]. rewrite Hs. auto. }
    destruct (IH c) as [n Hn]; auto.
    + intros k g F Hk HF. destruct (Hsolo k g F Hk HF) as (d & N & Ha & HN).
      exists d, N. split; auto. simpl in HN. rewrite (Hnone g) in HN; auto.
      eapply nth_error_In; eauto.
    + intros l' Hl' Hg' m. rewrite <- Hmove, <- iter_shift. apply Hidle; auto. right; auto.
    + exists (S n). rewrite iter_shift, Hmove. auto.
Qed.

(* Every complete interleaving ends where the canonical run does, and the canonical
   run does end. *)
Theorem interleaving_ends_canonically (gs : list (nat -> bool)) Fs ls c0 sched :
  length Fs = length gs ->
  (forall k g F, nth_error gs k = Some g -> nth_error Fs k = Some F ->
     forall l, In l ls -> g l = true -> local F (step l)) ->
  disjoint Fs ->
  (forall i j gi gj l, nth_error gs i = Some gi -> nth_error gs j = Some gj ->
     In l ls -> gi l = true -> gj l = true -> i = j) ->
  (forall l, In l ls -> (forall g, In g gs -> g l = false) ->
     forall m, step l (snd (iter m (ls, c0))) = (false, snd (iter m (ls, c0)))) ->
  complete (exec sched (map (fun g => filter g ls) gs, c0)) ->
  exists n, iter n (ls, c0) = ([], snd (exec sched (map (fun g => filter g ls) gs, c0))).
Proof.
  intros Hlen Hloc Hdis Huniq Hidle Hc.
  assert (Hloc2 : forall k t F, nth_error (map (fun g => filter g ls) gs) k = Some t ->
     nth_error Fs k = Some F -> forall l, In l t -> local F (step l)).
  { intros k t F Ht HF l Hl. rewrite nth_error_map in Ht.
    destruct (nth_error gs k) as [g|] eqn:Eg; try discriminate. simpl in Ht.
    injection Ht as <-. apply filter_In in Hl. destruct Hl. eapply Hloc; eauto. }
  destruct (exec_projects (map (fun g => filter g ls) gs) Fs c0 sched) as (_ & _ & _ & G); auto.
  { rewrite map_length. auto. }
  destruct (canonical_ends gs Fs Hlen Hdis ls c0) as [n Hn]; auto.
  { intros k g F Hk HF.
    destruct (G k (filter g ls) F) as (N & HN & Ha); auto.
    { rewrite nth_error_map, Hk. auto. }
    exists c0, N. split; [apply agree_refl|].
    unfold complete in Hc. rewrite Forall_forall in Hc. apply nth_error_In in HN.
    apply Hc in HN. auto. }
  destruct (iter n (ls, c0)) as [t cf] eqn:En. simpl in Hn. subst t.
  exists n. rewrite En. f_equal. symmetry.
  eapply interleaving_is_canonical; eauto.
Qed.

(* A schedule that completes the groups exists whenever the canonical run ends, and
   then every schedule can be completed. *)
Theorem canonical_has_a_schedule (gs : list (nat -> bool)) ls c0 n cf :
  (forall i j gi gj l, nth_error gs i = Some gi -> nth_error gs j = Some gj ->
     In l ls -> gi l = true -> gj l = true -> i = j) ->
  (forall l, In l ls -> (forall g, In g gs -> g l = false) ->
     forall m, step l (snd (iter m (ls, c0))) = (false, snd (iter m (ls, c0)))) ->
  iter n (ls, c0) = ([], cf) ->
  exists sched, complete (exec sched (map (fun g => filter g ls) gs, c0)).
Proof.
  intros H1 H2 H3. destruct (canonical_is_a_schedule gs n ls c0 cf H1 H2 H3) as [s Hs].
  exists s. rewrite Hs. unfold complete. simpl. apply Forall_forall.
  intros t Ht. apply in_map_iff in Ht. destruct Ht as (? & <- & _). auto.
Qed.

(* Workers: each has a queue of groups and runs the first of it, move by move, to
   its end before the next. A worker event is the number of the worker that moves. *)
Definition team := (list (list nat) * world)%type.

Definition worker_move (t : team) (i : nat) : team :=
  match nth_error (fst t) i with
  | Some (k :: rest) =>
      match nth_error (fst (snd t)) k with
      | Some (_ :: _) => (fst t, pick_move (snd t) k)
      | _ => (upd i rest (fst t), snd t)
      end
  | _ => t
  end.

Definition work (events : list nat) (t : team) : team := fold_left worker_move events t.

Theorem workers_follow_a_schedule events : forall t,
  exists sched, snd (work events t) = exec sched (snd t).
Proof.
  induction events as [|i events IH]; intros t; simpl.
  - exists []. auto.
  - destruct (IH (worker_move t i)) as [s Hs]. unfold work in *. rewrite Hs.
    unfold worker_move. destruct (nth_error (fst t) i) as [[|k rest]|]; eauto.
    destruct (nth_error (fst (snd t)) k) as [[|x y]|]; simpl; eauto.
    exists (k :: s). auto.
Qed.

End Interleave.

(* Steps that agree on every store with an invariant make the same runs. *)
Section Extensionality.

Variables (store : Type) (s1 s2 : nat -> store -> bool * store) (P : store -> Prop).

Lemma move_ext t c :
  (forall l, In l t -> s1 l c = s2 l c) -> move store s1 (t, c) = move store s2 (t, c).
Proof.
  intros H. unfold move. cbn [fst snd]. destruct t as [|l r]; auto.
  rewrite (H l (or_introl eq_refl)). auto.
Qed.

Hypothesis P_step : forall l c, P c -> P (snd (s1 l c)).

Lemma P_move t c : P c -> P (snd (move store s1 (t, c))).
Proof.
  intros H. unfold move. cbn [fst snd]. destruct t as [|l r]; auto.
  specialize (P_step l c H). destruct (s1 l c) as [[] c']; auto.
Qed.

Lemma iter_ext n t c : P c ->
  (forall l d, In l t -> P d -> s1 l d = s2 l d) ->
  iter store s1 n (t, c) = iter store s2 n (t, c) /\ P (snd (iter store s1 n (t, c))).
Proof.
  intros Hc H. induction n as [|n [IH IHP]]; simpl; auto.
  assert (Hsub := iter_subset store s1 n (t, c)). cbn [fst] in Hsub.
  rewrite <- IH. destruct (iter store s1 n (t, c)) as [t' c']. cbn [fst snd] in *.
  split; [|apply P_move; auto]. apply move_ext. intros l Hl. apply H; auto.
Qed.

Lemma exec_ext sched : forall ts c, P c ->
  (forall t l d, In t ts -> In l t -> P d -> s1 l d = s2 l d) ->
  exec store s1 sched (ts, c) = exec store s2 sched (ts, c) /\
  P (snd (exec store s1 sched (ts, c))).
Proof.
  induction sched as [|k sched IH]; intros ts c Hc H; [simpl; auto|].
  unfold exec in *. cbn [fold_left]. unfold pick_move at 2 4 6. cbn [fst snd].
  destruct (nth_error ts k) as [t|] eqn:Et; [|apply IH; auto].
  assert (Hin := nth_error_In _ _ Et).
  rewrite <- (move_ext t c) by (intros; eapply H; eauto).
  assert (Hsub := move_subset store s1 (t, c)). assert (HP := P_move t c Hc).
  destruct (move store s1 (t, c)) as [t' c']. cbn [fst snd] in *.
  apply IH; auto. intros u l d Hu Hl Hd.
  apply In_nth_error in Hu. destruct Hu as [j Hj]. rewrite nth_upd in Hj.
  destruct (Nat.eqb k j).
  - destruct (nth_error ts j); [|discriminate]. cbn in Hj.
    injection Hj as <-. eapply H; eauto.
  - apply (H u); auto. eapply nth_error_In; eauto.
Qed.

End Extensionality.
