(** How far service under the fair policy is from the exact share, at both levels: of sessions on
    a lane, and of the coroutines of a session.

    Sessions whose coroutines are always ready and use their slices up: [rounds] is any number of
    picks, each followed by a slice of the lane's time (guest cycles, the pick, the switch and the
    wakes) of at most the bound of the pick and [g] cycles. A session may keep the lane over
    several slices; the bound of a pick is the smaller one of both levels. [S] is at least the
    shortest slice of the sessions, [T] at least the shortest slice of each session's coroutines.
    Service is exact. W and w are the weights of all sessions and of one, X and x their service;
    U, u, Y, y the same of the coroutines of the session.

    - [sessions_ahead]: no session is ahead of its share w / W of X by more than S + g + 1 cycles
      and rounding, at every time, for every sequence of picks.
    - [sessions_behind]: so none is behind it by more than n - 1 times that.
    - [coroutines_ahead], [coroutines_behind]: the same for the coroutines of each session and Y,
      with T + g cycles.
    - [service_is_one]: the service of a session is that of its coroutines.
    - [both_levels_ahead]: so no coroutine is ahead of its part of its session's part of X by more
      than the two errors together.
    - [equal_starts]: a lane on which nothing has run yet satisfies the premises.

    Not covered: yields, sleeps, arrivals, changes of weight, handoff, moves; the sharp bound
    behind the share (docs/fair.md); slices that the end of a wave interrupts. *)

From Coq Require Import ZArith List Bool Lia.
From Wavelock Require Import Fair FairBound Shares.
Import ListNotations.
Open Scope Z_scope.

(** ** The upper queue while one session has the lane *)

(** Session [s] has the lane, all others are queued. *)
Definition LaneOnly (s : Z) (u : fair) : Prop :=
  In s (map fst (f_all u)) /\
  Forall (fun e => if fst e =? s then is_on_lane (snd e) = true else is_queued (snd e) = true)
    (f_all u).

(** What its shape is: nothing that a turn changes. *)
Definition shape (f : fair) : Z * Z * list (Z * (Z * Z)) :=
  (f_base f, f_least f, map (fun e => (fst e, (f_weight (snd e), f_class (snd e)))) (f_all f)).

(** A slice of one that competes. *)
Definition SliceOf (n : Z) (f : fair) : Prop :=
  exists e, In e (f_all f) /\ slice_of f (f_class (snd e)) <= n.

Lemma shape_slice n f g : shape f = shape g -> SliceOf n f -> SliceOf n g.
Proof.
  unfold shape, SliceOf. intros E ((k & c) & Hin & Hs). injection E as E1 E2 E3.
  assert (I : In (k, (f_weight c, f_class c))
                (map (fun e => (fst e, (f_weight (snd e), f_class (snd e)))) (f_all g))).
  { rewrite <- E3. apply in_map_iff. exists (k, c). auto. }
  apply in_map_iff in I. destruct I as ((j & d) & Ed & Hd). exists (j, d). split; auto.
  injection Ed as _ _ Ec. cbn in *. unfold slice_of in *. rewrite Ec, <- E1, <- E2. exact Hs.
Qed.

Lemma fold_min_le (h : competitor -> Z) l : forall m,
  fold_left (fun m d => Z.min m (h d)) l m <= m /\
  forall d, In d l -> fold_left (fun m d => Z.min m (h d)) l m <= h d.
Proof.
  induction l as [|c r IH]; cbn; intros m; [split; [lia|tauto]|].
  destruct (IH (Z.min m (h c))) as [I1 I2]. split; [lia|].
  intros d [<-|Hd]; [lia|auto].
Qed.


Lemma all_compete f : Forall (fun e => competes (snd e) = true) (f_all f) ->
  competing f = map snd (f_all f).
Proof.
  unfold competing. induction (f_all f) as [|e r IH]; intros H; auto. inversion H; subst. cbn.
  destruct (competes (snd e)); [|discriminate]. f_equal. auto.
Qed.

Lemma least_slice_le f n : Forall (fun e => competes (snd e) = true) (f_all f) -> SliceOf n f ->
  least_slice f <= n.
Proof.
  intros H ((k & c) & Hin & Hs). cbn in Hs. unfold least_slice. rewrite (all_compete f H).
  assert (I : In c (map snd (f_all f))) by (apply (in_map snd) in Hin; exact Hin).
  destruct (map snd (f_all f)) as [|d r]; [destruct I|].
  destruct (fold_min_le (fun d => slice_of f (f_class d)) r (slice_of f (f_class d))) as [M1 M2].
  destruct I as [<-|I]; [lia|]. specialize (M2 c I). lia.
Qed.

Lemma queued_competes c : is_queued c = true -> competes c = true.
Proof. unfold is_queued, competes. destruct (f_at c); auto; discriminate. Qed.
Lemma on_lane_competes c : is_on_lane c = true -> competes c = true.
Proof. unfold is_on_lane, competes. destruct (f_at c); auto; discriminate. Qed.

Lemma lane_only_found s u : LaneOnly s u -> NoDup (map fst (f_all u)) ->
  exists c, In (s, c) (f_all u) /\ on_lane u = Some (s, c).
Proof.
  unfold LaneOnly, on_lane. intros [Hin Hall] Hnd.
  induction (f_all u) as [|[k d] r IH]; cbn in *; [tauto|].
  inversion Hnd; subst. inversion Hall; subst. cbn in H3. destruct (Z.eqb_spec k s) as [->|Hne].
  - exists d. rewrite H3. auto.
  - assert (Q : is_on_lane d = false).
    { clear - H3. unfold is_queued, is_on_lane in *. destruct (f_at d); auto; discriminate. }
    rewrite Q. destruct Hin as [->|Hin]; [congruence|]. destruct (IH Hin H4 H2) as (c & C1 & C2).
    eauto.
Qed.

(** A charge. *)
Lemma charge_lane s c n u : LaneOnly s u -> Whole u -> on_lane u = Some (s, c) ->
  In (s, c) (f_all u) -> 0 <= n ->
  LaneOnly s (fair_charge n u) /\ Whole (fair_charge n u) /\
  shape (fair_charge n u) = shape u /\ f_protected (fair_charge n u) = f_protected u /\
  view (f_all (fair_charge n u)) = add_to s (n * units) (view (f_all u)) /\
  exists d, on_lane (fair_charge n u) = Some (s, d) /\ In (s, d) (f_all (fair_charge n u)) /\
    exact d = exact c + n * units /\ f_weight d = f_weight c.
Proof.
  intros [Hs Ho] [Hnd Hw] Hl Hin Hn. unfold fair_charge. rewrite Hl.
  set (v := f_v c + (n * units + f_remainder c) / f_weight c).
  set (dl := if f_deadline c <=? v then v + request_of u c else f_deadline c).
  set (h := fun x : competitor => Competitor (f_at x) (f_weight x) (f_class x)
              ((n * units + f_remainder c) mod f_weight x) v dl (f_arrival x)).
  assert (Wc : 0 < f_weight c).
  { rewrite Forall_forall in Hw. destruct (Hw _ Hin). auto. }
  assert (K : map fst (f_all (fair_set s h u)) = map fst (f_all u)) by apply keys_set.
  assert (X : forall k x, In (k, x) (f_all u) -> k = s -> x = c).
  { intros k x Hx ->. eapply same_competitor; eauto. }
  assert (L1 : LaneOnly s (fair_set s h u)).
  { split; [rewrite K; auto|]. rewrite set_all. apply Forall_forall. intros e He.
    apply in_map_iff in He. destruct He as (e0 & <- & He0). rewrite Forall_forall in Ho.
    specialize (Ho e0 He0). destruct (fst e0 =? s) eqn:E; cbn [fst snd]; rewrite E; exact Ho. }
  assert (W1 : Whole (fair_set s h u)).
  { split; [rewrite K; auto|]. rewrite set_all. apply Forall_forall. intros e He.
    apply in_map_iff in He. destruct He as ([k x] & <- & He0). rewrite Forall_forall in Hw.
    destruct (Hw _ He0) as [A1 A2]. cbn [fst snd] in *.
    destruct (Z.eqb_spec k s) as [->|E]; cbn [fst snd]; auto.
    split; auto. cbn. apply Z.mod_pos_bound. auto. }
  split; [exact L1|]. split; [exact W1|]. split; [|split; [reflexivity|]].
  { unfold shape. cbn [fair_set with_all f_base f_least f_all]. f_equal. rewrite map_map.
    apply map_ext. intros e. destruct (fst e =? s); reflexivity. }
  split.
  - rewrite set_all. unfold view, add_to. rewrite !map_map. apply map_ext_in. intros [k x] Hx.
    cbn [fst snd]. destruct (Z.eqb_spec k s) as [->|E]; cbn [fst snd]; [|reflexivity].
    rewrite (X s x Hx eq_refl). f_equal. f_equal. unfold exact, h, v.
    cbn [f_weight f_v f_remainder].
    assert (E := Z.div_mod (n * units + f_remainder c) (f_weight c)). lia.
  - destruct (lane_only_found s (fair_set s h u) L1 (proj1 W1)) as (d & D1 & D2). exists d.
    split; auto. split; auto. rewrite set_all in D1. apply in_map_iff in D1.
    destruct D1 as ([k x] & E & Hx). cbn [fst snd] in E. destruct (Z.eqb_spec k s) as [->|Hne].
    + injection E as <-. rewrite (X s x Hx eq_refl). unfold exact, h, v.
      cbn [f_weight f_v f_remainder]. split; auto.
      assert (E := Z.div_mod (n * units + f_remainder c) (f_weight c)). lia.
    + injection E as -> _. congruence.
Qed.

(** Back to the queue. *)
Lemma requeue_lane s u : LaneOnly s u -> Whole u ->
  AllQueued (fair_requeue u) /\ Whole (fair_requeue u) /\ shape (fair_requeue u) = shape u /\
  view (f_all (fair_requeue u)) = view (f_all u).
Proof.
  intros Hl [Hnd Hw]. destruct (lane_only_found s u Hl Hnd) as (c & Hin & Ho).
  unfold fair_requeue. rewrite Ho. destruct Hl as [Hs Ha].
  set (h := fun c : competitor => Competitor FQueue (f_weight c) (f_class c) (f_remainder c) (f_v c)
              (f_deadline c) (f_arrivals u)).
  assert (E : f_all (fair_queue s FQueue u) = f_all (fair_set s h u)) by reflexivity.
  assert (P : Plain h) by (intros x; repeat split).
  split; [|split; [split|split]].
  - unfold AllQueued. rewrite E, set_all. apply Forall_forall. intros e He. apply in_map_iff in He.
    destruct He as (e0 & <- & He0). rewrite Forall_forall in Ha. specialize (Ha e0 He0).
    destruct (Z.eqb_spec (fst e0) s); auto.
  - rewrite E, keys_set. auto.
  - rewrite E, set_all. apply Forall_forall. intros e He. apply in_map_iff in He.
    destruct He as (e0 & <- & He0). rewrite Forall_forall in Hw. specialize (Hw e0 He0).
    destruct (fst e0 =? s); auto.
  - unfold shape. cbn [fair_queue f_base f_least f_all fair_set with_all]. f_equal. rewrite map_map.
    apply map_ext. intros e. destruct (fst e =? s); reflexivity.
  - rewrite E. apply plain_view. exact P.
Qed.

(** Whoever is picked has the lane. *)
Lemma pick_lane f s c : AllQueued f -> In s (map fst (f_all f)) -> NoDup (map fst (f_all f)) ->
  In (s, c) (f_all f) ->
  let g := protect s (fair_set s (fset_at FLane) f) in
  LaneOnly s g /\ shape g = shape f /\ view (f_all g) = view (f_all f) /\
  In (s, fset_at FLane c) (f_all g) /\
  f_protected g <= f_v c + least_slice (fair_set s (fset_at FLane) f) * units / f_weight c.
Proof.
  intros Hq Hs Hnd Hin g. set (f1 := fair_set s (fset_at FLane) f).
  assert (A : f_all g = f_all f1) by apply protect_all.
  assert (P : Plain (fset_at FLane)) by (intros x; repeat split).
  assert (I1 : In (s, fset_at FLane c) (f_all f1)).
  { unfold f1. rewrite set_all. apply in_map_iff. exists (s, c). cbn. rewrite Z.eqb_refl. auto. }
  split; [split|split; [|split; [|split]]].
  - rewrite A. unfold f1. rewrite keys_set. exact Hs.
  - rewrite A. unfold f1. rewrite set_all. apply Forall_forall. intros e He. apply in_map_iff in He.
    destruct He as (e0 & <- & He0). unfold AllQueued in Hq. rewrite Forall_forall in Hq.
    specialize (Hq e0 He0). destruct (fst e0 =? s) eqn:E; cbn [fst snd]; rewrite E;
      [reflexivity|exact Hq].
  - unfold shape. rewrite A.
    assert (B : f_base g = f_base f /\ f_least g = f_least f).
    { unfold g, protect. fold f1. destruct (fair_get f1 s); auto. }
    destruct B as [-> ->]. f_equal. unfold f1. rewrite set_all, map_map. apply map_ext. intros e.
    destruct (fst e =? s); reflexivity.
  - rewrite A. apply plain_view. exact P.
  - rewrite A. exact I1.
  - unfold g, protect. fold f1.
    assert (G : fair_get f1 s = Some (fset_at FLane c)).
    { destruct (fair_get f1 s) as [d|] eqn:E.
      - unfold fair_get in E. apply find_in in E. f_equal.
        eapply (same_competitor s d _ (f_all f1)); eauto. unfold f1. rewrite keys_set. exact Hnd.
      - exfalso. unfold fair_get in E. clear - E I1.
        induction (f_all f1) as [|[k x] r IH]; [destruct I1|].
        cbn in E. destruct (Z.eqb_spec k s) as [->|Hne]; [discriminate|].
        destruct I1 as [I1|I1]; [congruence|auto]. }
    rewrite G. cbn. lia.
Qed.

(** A charge keeps the bound for all, if the one charged was not ahead when it had served [e0], and
    has served at most [b] since. *)
Lemma add_ahead_since s n b l w x e0 : Sound l -> In (s, (w, x)) l ->
  weights l * e0 - w * (served l - (x - e0)) <= weights l * w -> e0 <= x -> 0 <= n ->
  x + n - e0 <= b -> Ahead b l -> Ahead b (add_to s n l).
Proof.
  intros [Hnd Hpos] Hin He Hx Hn Hb Ha k w' x' Hk.
  rewrite add_weights, add_served by (auto; apply (in_map fst) in Hin; exact Hin).
  destruct (in_add_to _ _ _ _ _ _ Hk) as [[_ Hk1]|[-> Hk1]].
  - specialize (Ha k w' x' Hk1).
    assert (P := weights_least l _ Hpos Hk1). cbn [fst snd] in P. nia.
  - assert (E : (w', x' - n) = (w, x)).
    { clear - Hnd Hin Hk1. induction l as [|e r IH]; cbn in *; [tauto|].
      inversion Hnd; subst. destruct Hin as [->|Hin], Hk1 as [E|Hk1].
      - congruence.
      - exfalso. apply H1. cbn. apply (in_map fst) in Hk1. exact Hk1.
      - subst e. exfalso. apply H1. cbn. apply (in_map fst) in Hin. exact Hin.
      - auto. }
    injection E as -> E. assert (P := weights_least l _ Hpos Hin). cbn [fst snd] in P. nia.
Qed.

(** ** The upper level *)

(** One has the lane since it had served [e0], when it was not ahead; what its protection leaves. *)
Definition Holds (S : Z) (s : Z) (u : fair) : Prop :=
  LaneOnly s u /\ exists c e0, In (s, c) (f_all u) /\ e0 <= exact c /\
    weights (view (f_all u)) * e0
      - f_weight c * (served (view (f_all u)) - (exact c - e0))
      <= weights (view (f_all u)) * f_weight c /\
    f_protected u * f_weight c - e0 <= S * units /\ exact c - e0 <= S * units.

Definition Upper (S g : Z) (u : fair) : Prop :=
  Whole u /\ SliceOf S u /\ Ahead ((S + g + 1) * units) (view (f_all u)) /\
  (AllQueued u \/ exists s, Holds S s u).

Lemma units_positive : 0 < units.
Proof. reflexivity. Qed.

Lemma pick_upper S g u s v : 0 <= S -> Upper S g u -> AllQueued u ->
  fair_pick u = (Some s, v) ->
  Whole v /\ SliceOf S v /\ view (f_all v) = view (f_all u) /\ Holds S s v /\ shape v = shape u.
Proof.
  intros HS (Hw & Hsl & Ha & _) Hq Hp.
  destruct (picked_eligible u s v Hq Hw Hp) as (c & Hin & Hv & ->).
  assert (Hx := eligible_exact u c s Hq Hw Hin Hv).
  assert (Hs : In s (map fst (f_all u))) by (apply (in_map fst) in Hin; exact Hin).
  destruct (pick_lane u s c Hq Hs (proj1 Hw) Hin) as (P1 & P2 & P3 & P4 & P5).
  set (v := protect s (fair_set s (fset_at FLane) u)) in *.
  assert (W : Whole v).
  { destruct Hw as [Hnd Hw]. split.
    - unfold v. rewrite protect_all, keys_set. exact Hnd.
    - unfold v. rewrite protect_all, set_all. apply Forall_forall. intros e He.
      apply in_map_iff in He. destruct He as (e0 & <- & He0). rewrite Forall_forall in Hw.
      specialize (Hw e0 He0). destruct (fst e0 =? s); auto. }
  split; auto. split; [eapply shape_slice; [symmetry; exact P2|exact Hsl]|]. split; auto.
  split; [|exact P2]. split; auto. exists (fset_at FLane c), (exact c).
  destruct Hw as [Hnd Hw]. rewrite Forall_forall in Hw. destruct (Hw _ Hin) as [W1 W2].
  cbn [snd] in W1, W2. assert (U := units_positive).
  split; auto. split; [unfold exact; cbn; lia|]. rewrite P3.
  change (f_weight (fset_at FLane c)) with (f_weight c).
  change (exact (fset_at FLane c)) with (exact c).
  replace (served (view (f_all u)) - (exact c - exact c)) with (served (view (f_all u))) by lia.
  split; [exact Hx|].
  split; [|nia].
  assert (L : least_slice (fair_set s (fset_at FLane) u) <= S).
  { apply least_slice_le.
    - rewrite set_all. apply Forall_forall. intros e He. apply in_map_iff in He.
      destruct He as (e0 & <- & He0). unfold AllQueued in Hq. rewrite Forall_forall in Hq.
      specialize (Hq e0 He0). destruct (fst e0 =? s); [reflexivity|].
      apply queued_competes. exact Hq.
    - eapply shape_slice; [|exact Hsl]. rewrite <- P2. unfold shape, v. rewrite protect_all.
      unfold protect. destruct (fair_get (fair_set s (fset_at FLane) u) s); reflexivity. }
  set (m := least_slice (fair_set s (fset_at FLane) u)) in *.
  assert (D : f_weight c * (m * units / f_weight c) <= m * units) by (apply Z.mul_div_le; lia).
  unfold exact. nia.
Qed.

(** A slice and its end. *)
Lemma charge_upper S g u s n : 0 <= S -> 0 <= g -> Upper S g u -> Holds S s u ->
  0 <= n <= fair_bound u + g ->
  let u1 := fair_charge n u in
  Whole u1 /\ SliceOf S u1 /\ LaneOnly s u1 /\ shape u1 = shape u /\
  view (f_all u1) = add_to s (n * units) (view (f_all u)) /\
  Ahead ((S + g + 1) * units) (view (f_all u1)) /\
  (fair_bound u1 = 0 \/ Holds S s u1).
Proof.
  intros HS Hg (Hw & Hsl & Ha & _) (Hl & c & e0 & Hin & E1 & E2 & E3 & E4) Hn u1.
  destruct (lane_only_found s u Hl (proj1 Hw)) as (c' & Hc' & Ho).
  assert (c' = c) by (eapply same_competitor; [exact (proj1 Hw)|exact Hc'|exact Hin]). subst c'.
  destruct (charge_lane s c n u Hl Hw Ho Hin ltac:(lia))
    as (C1 & C2 & C3 & C4 & C5 & d & D1 & D2 & D3 & D4).
  fold u1 in C1, C2, C3, C4, C5, D1, D2.
  assert (U := units_positive).
  assert (Wc : 0 < f_weight c /\ 0 <= f_remainder c < f_weight c).
  { destruct Hw as [_ Hw]. rewrite Forall_forall in Hw. apply (Hw _ Hin). }
  assert (Iv : In (s, (f_weight c, exact c)) (view (f_all u))).
  { unfold view. apply in_map_iff. exists (s, c). auto. }
  assert (Bd : n * units <= g * units
               + (if f_protected u <=? f_v c then 0
                  else f_protected u * f_weight c - exact c + units - 1)).
  { unfold fair_bound in Hn. rewrite Ho in Hn. unfold exact.
    destruct (f_protected u <=? f_v c); [nia|].
    set (a := (f_protected u - f_v c) * f_weight c - f_remainder c + units - 1) in *.
    assert (D : units * (a / units) <= a) by (apply Z.mul_div_le; lia). nia. }
  assert (T : exact c + n * units - e0 <= (S + g + 1) * units).
  { destruct (f_protected u <=? f_v c); nia. }
  split; auto. split; [eapply shape_slice; [symmetry; exact C3|exact Hsl]|].
  split; auto. split; auto. split; auto. split.
  - rewrite C5. apply (add_ahead_since s _ _ _ (f_weight c) (exact c) e0); auto; try nia.
    apply whole_sound. exact Hw.
  - destruct (Z.leb_spec (f_protected u1) (f_v d)) as [Lp|Lp].
    + left. unfold fair_bound. rewrite D1.
      destruct (Z.leb_spec (f_protected u1) (f_v d)); [auto|lia].
    + right. split; auto. exists d, e0. split; auto. split; [nia|].
      rewrite C5, D3, D4, add_weights, add_served.
      * split; [|split].
        -- replace (served (view (f_all u)) + n * units - (exact c + n * units - e0))
             with (served (view (f_all u)) - (exact c - e0)) by lia. exact E2.
        -- rewrite C4. exact E3.
        -- assert (Wd : 0 <= f_remainder d < f_weight d).
           { destruct C2 as [_ C2]. rewrite Forall_forall in C2. apply (C2 _ D2). }
           assert (X : exact d <= f_protected u1 * f_weight d) by (unfold exact; nia).
           rewrite C4, D4 in X. nia.
      * destruct Hw as [Hnd _]. unfold view. rewrite map_map. exact Hnd.
      * apply (in_map fst) in Iv. exact Iv.
Qed.

(** ** Both levels *)

Definition Both (S T g : Z) (h : shares) : Prop :=
  exists u, h_upper h = Some u /\ f_all (h_new h) = [] /\ Upper S g u /\
    NoDup (map fst (h_lower h)) /\
    Forall (fun e => AllQueued (snd e) /\ Whole (snd e) /\ SliceOf T (snd e) /\
              Ahead ((T + g) * units) (view (f_all (snd e)))) (h_lower h).

(** A slice of [n] cycles of the lane after a pick, and back to the queues. *)
Definition round (n : Z) (h : shares) : shares := sh_requeue (sh_charge 0 (h_mark h + n) h).

Inductive rounds (g : Z) (h : shares) : shares -> Prop :=
| no_round : rounds g h h
| one_round k s i n : rounds g h k -> sh_pick k = (Some s, i) -> 0 <= n <= sh_bound i + g ->
    rounds g h (round n i).

(** What a session has served on the lane, less what its coroutines have. *)
Definition Linked (d : Z -> Z) (h : shares) : Prop :=
  forall u k f c, h_upper h = Some u -> In (k, f) (h_lower h) -> In (k, c) (f_all u) ->
    served (view (f_all f)) = exact c + d k.

Lemma sh_find_in {A} k (l : list (Z * A)) a : sh_find k l = Some a -> In (k, a) l.
Proof.
  induction l as [|[j b] r IH]; cbn; [discriminate|].
  destruct (Z.eqb_spec j k) as [->|]; intros H; [injection H as ->; auto|auto].
Qed.

Lemma on_group_lower k f h : h_lower (on_group k f h)
  = map (fun e => if fst e =? k then (fst e, f (snd e)) else e) (h_lower h).
Proof. reflexivity. Qed.

Lemma sh_find_map {A} k (f : A -> A) (l : list (Z * A)) a : sh_find k l = Some a ->
  sh_find k (map (fun e => if fst e =? k then (fst e, f (snd e)) else e) l) = Some (f a).
Proof.
  induction l as [|[j b] r IH]; cbn; [discriminate|].
  destruct (j =? k) eqn:E; cbn; rewrite E; [intros H; injection H as ->|]; auto.
Qed.

Lemma slice_positive f c : 1 <= slice_of f c.
Proof. unfold slice_of, class_request. lia. Qed.

Lemma least_positive f e : In e (f_all f) -> competes (snd e) = true -> 0 <= least_slice f.
Proof.
  intros Hin Hc. unfold least_slice.
  assert (I : In (snd e) (competing f)).
  { unfold competing. apply filter_In. split; auto. apply in_map. exact Hin. }
  destruct (competing f) as [|c r]; [destruct I|]. clear I.
  assert (G : forall l m, 0 <= m ->
    0 <= fold_left (fun m d => Z.min m (slice_of f (f_class d))) l m).
  { induction l as [|d l IH]; cbn; intros m Hm; auto. apply IH.
    assert (H := slice_positive f (f_class d)). lia. }
  apply G. assert (H := slice_positive f (f_class c)). lia.
Qed.

(** One of the coroutines of a session. *)
Lemma lower_round T g f s f1 n : AllQueued f -> Whole f -> SliceOf T f ->
  Ahead ((T + g) * units) (view (f_all f)) -> fair_pick f = (Some s, f1) ->
  0 <= n -> n <= fair_bound f1 + g ->
  let f2 := fair_requeue (fair_charge n f1) in
  AllQueued f2 /\ Whole f2 /\ SliceOf T f2 /\
  view (f_all f2) = add_to s (n * units) (view (f_all f)) /\
  Ahead ((T + g) * units) (view (f_all f2)) /\ In s (map fst (f_all f)).
Proof.
  intros Hq Hw Hsl Ha Hp Hn Hb f2.
  destruct (picked_eligible f s f1 Hq Hw Hp) as (c & Hin & Hv & E1).
  assert (Hx := eligible_exact f c s Hq Hw Hin Hv).
  assert (Hs : In s (map fst (f_all f))) by (apply (in_map fst) in Hin; exact Hin).
  destruct (pick_lane f s c Hq Hs (proj1 Hw) Hin) as (P1 & P2 & P3 & P4 & _).
  assert (Lc : Forall (fun e => competes (snd e) = true) (f_all (fair_set s (fset_at FLane) f))).
  { rewrite set_all. apply Forall_forall. intros e He. apply in_map_iff in He.
    destruct He as (e0 & <- & He0). unfold AllQueued in Hq. rewrite Forall_forall in Hq.
    specialize (Hq e0 He0). destruct (fst e0 =? s); [reflexivity|].
    apply queued_competes. exact Hq. }
  assert (L1 : fair_bound f1 <= T).
  { assert (B := bound_is_a_slice f s f1 Hq Hw Hp).
    assert (L : least_slice (fair_set s (fset_at FLane) f) <= T).
    { apply least_slice_le; auto. eapply shape_slice; [|exact Hsl]. rewrite <- P2.
      unfold shape. rewrite protect_all. unfold protect.
      destruct (fair_get (fair_set s (fset_at FLane) f) s); reflexivity. }
    assert (0 <= least_slice (fair_set s (fset_at FLane) f)).
    { rewrite protect_all in P4. apply (least_positive _ _ P4). reflexivity. }
    specialize (B H). lia. }
  rewrite <- E1 in P1, P2, P3, P4.
  assert (W1 : Whole f1).
  { rewrite E1. destruct Hw as [Hnd Hw]. split.
    - rewrite protect_all, keys_set. exact Hnd.
    - rewrite protect_all, set_all. apply Forall_forall. intros e He.
      apply in_map_iff in He. destruct He as (e0 & <- & He0). rewrite Forall_forall in Hw.
      specialize (Hw e0 He0). destruct (fst e0 =? s); auto. }
  destruct (lane_only_found s f1 P1 (proj1 W1)) as (c' & Hc' & Ho).
  destruct (charge_lane s c' n f1 P1 W1 Ho Hc' Hn) as (C1 & C2 & C3 & _ & C5 & _).
  destruct (requeue_lane s _ C1 C2) as (Q1 & Q2 & Q3 & Q4).
  split; [exact Q1|]. split; [exact Q2|].
  split; [eapply shape_slice; [|exact Hsl]; unfold f2; congruence|].
  assert (V : view (f_all f2) = add_to s (n * units) (view (f_all f))).
  { unfold f2. rewrite Q4, C5, P3. reflexivity. }
  split; auto. split; auto. rewrite V. assert (U := units_positive).
  apply (add_ahead_since s _ _ _ (f_weight c) (exact c) (exact c)); auto; try nia.
  - apply whole_sound. auto.
  - unfold view. apply in_map_iff. exists (s, c). auto.
Qed.

Lemma empty_picks_nothing f : f_all f = [] -> fst (fair_pick f) = None.
Proof.
  intros E. unfold fair_pick.
  assert (D : dismiss 8 f = f).
  { cbn. unfold first_eligible. rewrite E. reflexivity. }
  rewrite D. unfold first_eligible, least_v. rewrite E. reflexivity.
Qed.

Lemma round_both S T g h s i n : 0 <= S -> 0 <= g -> Both S T g h ->
  sh_pick h = (Some s, i) -> 0 <= n <= sh_bound i + g ->
  exists u u2 k f f2, h_upper h = Some u /\ h_upper (round n i) = Some u2 /\
    view (f_all u2) = add_to k (n * units) (view (f_all u)) /\ In k (map fst (f_all u)) /\
    In (k, f) (h_lower h) /\
    h_lower (round n i) = map (fun e => if fst e =? k then (fst e, f2) else e) (h_lower h) /\
    view (f_all f2) = add_to s (n * units) (view (f_all f)) /\ In s (map fst (f_all f)) /\
    Both S T g (round n i).
Proof.
  intros HS Hg (u & Hu & Hnew & Hup & Hnd & Hlow) Hp Hn.
  (* The session that has the lane. *)
  assert (A : exists v k, with_upper (Some v) h
      = match holder h, h_upper h with
        | None, Some u => with_upper (Some (snd (fair_pick u))) h
        | _, _ => h
        end /\ Upper S g v /\ Holds S k v /\ view (f_all v) = view (f_all u)
      /\ shape v = shape u).
  { destruct Hup as (Hw & Hsl & Ha & [Hq|(k & Hk)]).
    - assert (Ho : on_lane u = None).
      { unfold on_lane. destruct (List.find _ (f_all u)) as [e|] eqn:E; auto.
        apply find_some in E. destruct E as [E1 E2]. unfold AllQueued in Hq.
        rewrite Forall_forall in Hq. specialize (Hq e E1). unfold is_queued, is_on_lane in *.
        destruct (f_at (snd e)); discriminate. }
      unfold sh_pick in Hp. unfold holder in Hp |- *. rewrite Hu in Hp |- *. rewrite Ho in Hp |- *.
      cbn [with_upper h_upper] in Hp.
      destruct (fair_pick u) as [[k|] v] eqn:Ep; cbn [snd] in Hp |- *.
      + exists v, k. split; auto.
        destruct (pick_upper S g u k v HS) as (P1 & P2 & P3 & P4 & P5); auto.
        { repeat split; auto; apply Hw. }
        split; [|auto]. split; auto. split; auto. rewrite P3. split; auto. right. eauto.
      + exfalso. assert (O : on_lane v = None).
        { assert (E : f_all v = f_all u).
          { unfold fair_pick in Ep. rewrite (no_delayed u Hq) in Ep.
            destruct (first_eligible is_queued u) as [[? ?]|]; [discriminate|].
            destruct (least_v u) as [m|]; [destruct (fair_first _ (f_all u)) as [[? ?]|]|];
              try discriminate; congruence. }
          unfold on_lane in Ho |- *. rewrite E. exact Ho. }
        rewrite O in Hp. discriminate.
    - exists u, k. unfold holder. rewrite Hu. destruct Hk as [Hl Hk].
      destruct (lane_only_found k u Hl (proj1 Hw)) as (c & _ & Ho). rewrite Ho.
      split; [destruct h; cbn in *; subst; reflexivity|].
      split; [repeat split; auto; [apply Hw|apply Hw|right; exists k; split; auto]|].
      split; auto. split; auto. }
  destruct A as (v & k & Ev & Hv & Hk & Vv & Sv).
  unfold sh_pick in Hp. rewrite <- Ev in Hp.
  assert (Hol : holder (with_upper (Some v) h) = Some k).
  { unfold holder. cbn [with_upper h_upper]. destruct Hk as [Hl _].
    destruct (lane_only_found k v Hl (proj1 (proj1 Hv))) as (c & _ & ->). reflexivity. }
  rewrite Hol in Hp.
  assert (Eg : group k (with_upper (Some v) h) = group k h) by reflexivity. rewrite Eg in Hp.
  destruct (fair_pick (group k h)) as [picked f1] eqn:Ep. injection Hp as -> <-.
  (* Its coroutine. *)
  assert (F : exists f, sh_find k (h_lower h) = Some f).
  { unfold group in Ep. destruct (sh_find k (h_lower h)) as [f|]; eauto.
    assert (N := empty_picks_nothing _ Hnew). rewrite Ep in N. discriminate. }
  destruct F as (f & Ff). assert (Fin := sh_find_in _ _ _ Ff).
  unfold group in Ep. rewrite Ff in Ep. rewrite Forall_forall in Hlow.
  destruct (Hlow _ Fin) as (G1 & G2 & G3 & G4). cbn [snd] in G1, G2, G3, G4.
  set (i := on_group k (fun _ => f1) (with_upper (Some v) h)) in *.
  assert (Hi : holder i = Some k) by exact Hol.
  assert (Gi : group k i = f1).
  { unfold group, i. rewrite on_group_lower. cbn [with_upper h_lower].
    rewrite (sh_find_map k (fun _ => f1) _ f Ff). reflexivity. }
  unfold sh_bound in Hn. rewrite Hi, Gi in Hn.
  change (h_upper i) with (Some v) in Hn. cbv iota in Hn.
  destruct (lower_round T g f s f1 n G1 G2 G3 G4 Ep ltac:(lia) ltac:(lia))
    as (L1 & L2 & L3 & L4 & L5 & L6).
  destruct (charge_upper S g v k n HS Hg Hv Hk ltac:(lia)) as (C1 & C2 & C3 & C4 & C5 & C6 & C7).
  set (f2 := fair_requeue (fair_charge n f1)) in *. set (v1 := fair_charge n v) in *.
  (* The end of the slice. *)
  set (c1 := sh_charge 0 (h_mark i + n) i).
  assert (Ec : c1 = on_group k (fair_charge n)
                      (with_upper (Some v1) (sh_mark (h_mark i + n) i))).
  { unfold c1, sh_charge. change (h_upper i) with (Some v). cbv iota. rewrite Hi.
    replace (h_mark i + n - h_mark i) with n by lia. reflexivity. }
  assert (Hc : holder c1 = Some k).
  { rewrite Ec. unfold holder. cbn.
    destruct (lane_only_found k v1 C3 (proj1 C1)) as (x & _ & ->). reflexivity. }
  assert (Lr : h_lower (round n i)
               = map (fun e => if fst e =? k then (fst e, f2) else e) (h_lower h)).
  { unfold round. fold c1. unfold sh_requeue. rewrite Hc.
    change (h_lower (on_upper _ (on_group k fair_requeue c1)))
      with (h_lower (on_group k fair_requeue c1)).
    rewrite on_group_lower, Ec, on_group_lower. cbn [with_upper sh_mark h_lower]. unfold i.
    rewrite on_group_lower. cbn [with_upper h_lower]. rewrite !map_map. apply map_ext. intros e.
    destruct (fst e =? k) eqn:E; cbn [fst snd]; [rewrite E; cbn [fst snd]; rewrite E; reflexivity|].
    rewrite E. cbn [fst snd]. rewrite E. reflexivity. }
  set (v2 := if (fair_bound v1 =? 0) || fair_prefers_another v1 then fair_requeue v1 else v1).
  assert (Ur : h_upper (round n i) = Some v2).
  { unfold round. fold c1. unfold sh_requeue. rewrite Hc, Ec. reflexivity. }
  assert (Nr : h_new (round n i) = h_new h).
  { unfold round. fold c1. unfold sh_requeue. rewrite Hc, Ec. reflexivity. }
  assert (V2 : view (f_all v2) = add_to k (n * units) (view (f_all u)) /\ Upper S g v2).
  { destruct (requeue_lane k v1 C3 C1) as (R1 & R2 & R3 & R4). unfold v2.
    destruct ((fair_bound v1 =? 0) || fair_prefers_another v1) eqn:E.
    - rewrite R4, C5, Vv. split; auto. split; [exact R2|].
      split; [eapply shape_slice; [symmetry; exact R3|exact C2]|]. rewrite R4. split; auto.
    - rewrite C5, Vv. split; auto. split; auto. split; auto. split; auto. right. exists k.
      apply orb_false_elim in E. destruct E as [E _]. apply Z.eqb_neq in E.
      destruct C7 as [C7|C7]; [congruence|auto]. }
  destruct V2 as [V2 V3].
  exists u, v2, k, f, f2. split; auto. split; auto. split; auto. split.
  { assert (K : map fst (view (f_all v)) = map fst (f_all v)) by (unfold view; apply map_map).
    assert (K2 : map fst (view (f_all u)) = map fst (f_all u)) by (unfold view; apply map_map).
    rewrite <- K2, <- Vv, K. apply Hk. }
  split; auto. split; auto. split; auto. split; auto.
  exists v2. split; auto. split; [congruence|]. split; auto. rewrite Lr. split.
  - rewrite map_map. replace (map _ (h_lower h)) with (map fst (h_lower h)); auto.
    apply map_ext. intros e. destruct (fst e =? k); reflexivity.
  - apply Forall_forall. intros e He. apply in_map_iff in He. destruct He as (e0 & <- & He0).
    destruct (fst e0 =? k); [|apply Hlow; auto]. cbn. auto.
Qed.

Theorem both_levels S T g h k : 0 <= S -> 0 <= g -> Both S T g h -> rounds g h k -> Both S T g k.
Proof.
  intros HS Hg Hb Hr. induction Hr as [|k s i n _ IH Hp Hn]; auto.
  destruct (round_both S T g k s i n HS Hg IH Hp Hn)
    as (? & ? & ? & ? & ? & _ & _ & _ & _ & _ & _ & _ & _ & R). exact R.
Qed.


(** The service of a session is the service of its coroutines. *)
Theorem service_is_one S T g h k d : 0 <= S -> 0 <= g -> Both S T g h -> Linked d h ->
  rounds g h k -> Linked d k.
Proof.
  intros HS Hg Hb Hl Hr. assert (Bk : Both S T g k) by (eapply both_levels; eauto).
  revert Bk. induction Hr as [|k s i n Hr IH Hp Hn]; intros _; auto.
  assert (Bk : Both S T g k) by (eapply both_levels; eauto). specialize (IH Bk).
  destruct (round_both S T g k s i n HS Hg Bk Hp Hn)
    as (u & u2 & j & f & f2 & R1 & R2 & R3 & R4 & R5 & R6 & R7 & R8 & R9).
  destruct Bk as (u' & Hu' & _ & (Hwu & _) & Hnd & Hlow).
  assert (u' = u) by congruence. subst u'.
  intros w m x c Hw Hx Hc. assert (w = u2) by congruence. subst w.
  (* The service of the session before. *)
  assert (Iv : In (m, (f_weight c, exact c)) (view (f_all u2))).
  { unfold view. apply in_map_iff. exists (m, c). auto. }
  rewrite R3 in Iv. rewrite R6 in Hx. apply in_map_iff in Hx. destruct Hx as ([q y] & Ex & Hy).
  cbn [fst snd] in Ex.
  destruct (in_add_to _ _ _ _ _ _ Iv) as [[Hne Io]|[-> Io]];
    unfold view in Io; apply in_map_iff in Io; destruct Io as ([q0 c0] & E0 & H0);
    cbn [fst snd] in E0; injection E0 as -> _ E0.
  - destruct (Z.eqb_spec q j) as [->|Hq]; [injection Ex as <- <-; congruence|].
    injection Ex as -> ->. rewrite <- E0. eapply IH; eauto.
  - destruct (Z.eqb_spec q j) as [->|Hq]; [|injection Ex as -> ->; congruence].
    injection Ex as <-. rewrite R7, add_served.
    + assert (y = f).
      { clear - Hnd Hy R5. induction (h_lower k) as [|e r IH]; cbn in *; [tauto|].
        inversion Hnd; subst. destruct Hy as [->|Hy], R5 as [E|R5].
        - congruence.
        - exfalso. apply H1. apply (in_map fst) in R5. exact R5.
        - subst e. exfalso. apply H1. apply (in_map fst) in Hy. exact Hy.
        - auto. }
      subst y. rewrite (IH u j f c0 R1 Hy H0). lia.
    + rewrite Forall_forall in Hlow. destruct (Hlow _ R5) as (_ & [Nf _] & _). unfold view.
      rewrite map_map. exact Nf.
    + unfold view. rewrite map_map. exact R8.
Qed.

(** No session is ahead of its share by more than a slice, what it may use beyond, and rounding. *)
Theorem sessions_ahead S T g h k u s c : 0 <= S -> 0 <= g -> Both S T g h -> rounds g h k ->
  h_upper k = Some u -> In (s, c) (f_all u) ->
  let W := weights (view (f_all u)) in
  W * exact c - f_weight c * served (view (f_all u))
  <= W * f_weight c + (W - f_weight c) * ((S + g + 1) * units).
Proof.
  intros HS Hg Hb Hr Hu Hin W.
  destruct (both_levels S T g h k HS Hg Hb Hr) as (u' & Hu' & _ & Hup & _).
  assert (u' = u) by congruence. subst u'. destruct Hup as (_ & _ & Ha & _).
  apply (Ha s (f_weight c) (exact c)). unfold view. apply in_map_iff. exists (s, c). auto.
Qed.

(** Nor behind it by more than n - 1 times that. *)
Theorem sessions_behind S T g h k u s c : 0 <= S -> 0 <= g -> Both S T g h -> rounds g h k ->
  h_upper k = Some u -> In (s, c) (f_all u) ->
  let W := weights (view (f_all u)) in
  f_weight c * served (view (f_all u)) - W * exact c
  <= W * (W - f_weight c)
     + (W * (Z.of_nat (length (f_all u)) - 1) - (W - f_weight c)) * ((S + g + 1) * units).
Proof.
  intros HS Hg Hb Hr Hu Hin W.
  destruct (both_levels S T g h k HS Hg Hb Hr) as (u' & Hu' & _ & Hup & _).
  assert (u' = u) by congruence. subst u'. destruct Hup as (_ & _ & Ha & _).
  assert (Iv : In (s, (f_weight c, exact c)) (view (f_all u))).
  { unfold view. apply in_map_iff. exists (s, c). auto. }
  assert (B := behind_follows _ _ _ _ _ Ha Iv).
  assert (L : length (view (f_all u)) = length (f_all u)) by apply map_length.
  rewrite L in B. exact B.
Qed.

(** The same within each session. *)
Theorem coroutines_ahead S T g h k s f i c : 0 <= S -> 0 <= g -> Both S T g h -> rounds g h k ->
  In (s, f) (h_lower k) -> In (i, c) (f_all f) ->
  let U := weights (view (f_all f)) in
  U * exact c - f_weight c * served (view (f_all f))
  <= U * f_weight c + (U - f_weight c) * ((T + g) * units).
Proof.
  intros HS Hg Hb Hr Hf Hin U.
  destruct (both_levels S T g h k HS Hg Hb Hr) as (u' & _ & _ & _ & _ & Hlow).
  rewrite Forall_forall in Hlow. destruct (Hlow _ Hf) as (_ & _ & _ & Ha). cbn [snd] in Ha.
  apply (Ha i (f_weight c) (exact c)). unfold view. apply in_map_iff. exists (i, c). auto.
Qed.

Theorem coroutines_behind S T g h k s f i c : 0 <= S -> 0 <= g -> Both S T g h -> rounds g h k ->
  In (s, f) (h_lower k) -> In (i, c) (f_all f) ->
  let U := weights (view (f_all f)) in
  f_weight c * served (view (f_all f)) - U * exact c
  <= U * (U - f_weight c)
     + (U * (Z.of_nat (length (f_all f)) - 1) - (U - f_weight c)) * ((T + g) * units).
Proof.
  intros HS Hg Hb Hr Hf Hin U.
  destruct (both_levels S T g h k HS Hg Hb Hr) as (u' & _ & _ & _ & _ & Hlow).
  rewrite Forall_forall in Hlow. destruct (Hlow _ Hf) as (_ & _ & _ & Ha). cbn [snd] in Ha.
  assert (Iv : In (i, (f_weight c, exact c)) (view (f_all f))).
  { unfold view. apply in_map_iff. exists (i, c). auto. }
  assert (B := behind_follows _ _ _ _ _ Ha Iv).
  assert (L : length (view (f_all f)) = length (f_all f)) by apply map_length.
  rewrite L in B. exact B.
Qed.

(** A coroutine's part of its session's part of the lane: the errors of the two levels add. [d] is
    what session and coroutines had served apart at the beginning, times the unit of service. *)
Theorem both_levels_ahead S T g d h k u s f cs i c : 0 <= S -> 0 <= g -> Both S T g h ->
  Linked d h -> rounds g h k ->
  h_upper k = Some u -> In (s, cs) (f_all u) -> In (s, f) (h_lower k) -> In (i, c) (f_all f) ->
  let W := weights (view (f_all u)) in
  let U := weights (view (f_all f)) in
  W * (U * exact c - f_weight c * d s) - f_weight c * f_weight cs * served (view (f_all u))
  <= W * (U * f_weight c + (U - f_weight c) * ((T + g) * units))
     + f_weight c * (W * f_weight cs + (W - f_weight cs) * ((S + g + 1) * units)).
Proof.
  intros HS Hg Hb Hl Hr Hu Hs Hf Hi W U.
  assert (A := sessions_ahead S T g h k u s cs HS Hg Hb Hr Hu Hs).
  assert (C := coroutines_ahead S T g h k s f i c HS Hg Hb Hr Hf Hi). cbv zeta in A, C.
  assert (L := service_is_one S T g h k d HS Hg Hb Hl Hr u s f cs Hu Hf Hs).
  destruct (both_levels S T g h k HS Hg Hb Hr) as (u' & Hu' & _ & (Hwu & _) & _ & Hlow).
  assert (u' = u) by congruence. subst u'.
  rewrite Forall_forall in Hlow. destruct (Hlow _ Hf) as (_ & Hwf & _). cbn [snd] in Hwf.
  assert (P1 : 0 < f_weight cs <= W).
  { apply (weights_least (view (f_all u)) (s, (f_weight cs, exact cs))).
    - apply (whole_sound u Hwu).
    - unfold view. apply in_map_iff. exists (s, cs). auto. }
  assert (P2 : 0 < f_weight c <= U).
  { apply (weights_least (view (f_all f)) (i, (f_weight c, exact c))).
    - apply (whole_sound f Hwf).
    - unfold view. apply in_map_iff. exists (i, c). auto. }
  fold W in A. fold U in C. revert A C L P1 P2. generalize (served (view (f_all u))).
  generalize (served (view (f_all f))). generalize (exact c). generalize (exact cs).
  generalize (f_weight c). generalize (f_weight cs). generalize ((T + g) * units).
  generalize ((S + g + 1) * units). generalize (d s). clearbody W U. clear.
  intros d B A w cw x y Y X H1 H2 H3 P1 P2. subst Y.
  assert (M1 : W * (U * y - cw * (x + d)) <= W * (U * cw + (U - cw) * A))
    by (apply Z.mul_le_mono_nonneg_l; lia).
  assert (M2 : cw * (W * x - w * X) <= cw * (W * w + (W - w) * B))
    by (apply Z.mul_le_mono_nonneg_l; lia).
  lia.
Qed.

(** A lane on which nothing has run: every session and coroutine queued with one virtual time. *)
Theorem equal_starts S T g h u v : 0 <= S -> 0 <= T -> 0 <= g -> h_upper h = Some u ->
  f_all (h_new h) = [] -> NoDup (map fst (h_lower h)) ->
  (forall f, (f = u /\ SliceOf S f) \/ (In f (map snd (h_lower h)) /\ SliceOf T f) ->
     AllQueued f /\ Whole f
     /\ Forall (fun e => f_v (snd e) = v /\ f_remainder (snd e) = 0) (f_all f)) ->
  SliceOf S u -> Forall (fun e => SliceOf T (snd e)) (h_lower h) ->
  Both S T g h.
Proof.
  intros HS HT Hg Hu Hnew Hnd H Hsu Hsl. exists u. split; auto. split; auto.
  destruct (H u (or_introl (conj eq_refl Hsu))) as (Q & Wh & V). split; [|split; auto].
  - split; auto. split; auto. split; auto. apply (equal_start _ _ v); auto. lia.
  - apply Forall_forall. intros e He. rewrite Forall_forall in Hsl. specialize (Hsl e He).
    destruct (H (snd e)) as (Q1 & W1 & V1).
    { right. split; auto. apply in_map. exact He. }
    split; auto. split; auto. split; auto. apply (equal_start _ _ v); auto. lia.
Qed.
