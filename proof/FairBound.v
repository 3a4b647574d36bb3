(** How far service under the fair policy is from the exact share, at one level.

    A set of competitors that are always ready and use their slices up: [turns] is any number of
    picks, each charged with what was used, at most [b] cycles: the bound of its slice and a gap.
    The service of a competitor is measured exactly ([exact]: units of 2^-20 cycles, with the
    remainder of every division). W is the sum of the weights, X the sum of all service.

    - [fair_ahead]: nobody is ahead of its share w / W of X by more than one slice and a gap, and
      one unit of rounding; at every time, for every sequence of picks.
    - [fair_behind]: so nobody is behind it by more than n - 1 times that.
    - [bound_is_a_slice]: a slice's bound is at most the shortest slice of the set.

    The second bound is not the sharp one that docs/fair.md states (D-I3: one slice and a gap in
    both directions), which is tested and not proved. Yields, sleeps, arrivals, changes of weight
    and slices that a wave's end interrupts are outside; so is the policy with shares for sessions. *)

From Coq Require Import ZArith List Bool Lia.
From Wavelock Require Import Fair.
Import ListNotations.
Open Scope Z_scope.

(** ** Exact service *)

Definition exact (c : competitor) : Z := f_weight c * f_v c + f_remainder c.

(** Each competitor's weight and exact service. *)
Definition view (l : list (Z * competitor)) : list (Z * (Z * Z)) :=
  map (fun e => (fst e, (f_weight (snd e), exact (snd e)))) l.

Fixpoint total (f : Z * Z -> Z) (l : list (Z * (Z * Z))) : Z :=
  match l with [] => 0 | e :: r => f (snd e) + total f r end.

Definition weights (l : list (Z * (Z * Z))) : Z := total fst l.
Definition served (l : list (Z * (Z * Z))) : Z := total snd l.

(** One competitor is charged. *)
Definition add_to (s n : Z) (l : list (Z * (Z * Z))) : list (Z * (Z * Z)) :=
  map (fun e => if fst e =? s then (fst e, (fst (snd e), snd (snd e) + n)) else e) l.

Definition Sound (l : list (Z * (Z * Z))) : Prop :=
  NoDup (map fst l) /\ Forall (fun e => 0 < fst (snd e)) l.

(** Ahead of the share by at most [b] and a unit of rounding, all times W. *)
Definition Ahead (b : Z) (l : list (Z * (Z * Z))) : Prop :=
  forall s w x, In (s, (w, x)) l ->
    weights l * x - w * served l <= weights l * w + (weights l - w) * b.

Lemma add_keys s n l : map fst (add_to s n l) = map fst l.
Proof.
  unfold add_to. rewrite map_map. apply map_ext. intros e. destruct (fst e =? s); reflexivity.
Qed.

Lemma add_weights s n l : weights (add_to s n l) = weights l.
Proof.
  unfold weights. induction l as [|e r IH]; cbn; auto.
  destruct (fst e =? s); cbn; fold (add_to s n r); rewrite IH; reflexivity.
Qed.

Lemma add_out s n l : ~ In s (map fst l) -> served (add_to s n l) = served l.
Proof.
  unfold served. induction l as [|e r IH]; cbn; intros H; auto. fold (add_to s n r).
  rewrite IH by tauto. destruct (Z.eqb_spec (fst e) s); [tauto|reflexivity].
Qed.

Lemma add_served s n l : NoDup (map fst l) -> In s (map fst l) ->
  served (add_to s n l) = served l + n.
Proof.
  induction l as [|[k p] r IH]; intros Hnd Hin; [destruct Hin|]. inversion Hnd; subst.
  assert (O := add_out s n r). unfold served in *. cbn [add_to map total].
  fold (add_to s n r). cbn [fst snd] in *. destruct (Z.eqb_spec k s) as [->|Hne]; cbn [fst snd].
  - rewrite O by assumption. lia.
  - cbn in Hin. destruct Hin as [E|Hin]; [congruence|]. rewrite (IH H2 Hin). lia.
Qed.

Lemma weights_least l e : Forall (fun e => 0 < fst (snd e)) l -> In e l ->
  0 < fst (snd e) <= weights l.
Proof.
  unfold weights. induction l as [|d r IH]; cbn; intros H Hin; [tauto|].
  inversion H; subst.
  assert (0 <= total fst r).
  { clear - H3. induction r as [|a r IH]; cbn; [lia|]. inversion H3; subst.
    specialize (IH H2). lia. }
  destruct Hin as [<-|Hin]; [lia|]. specialize (IH H3 Hin). lia.
Qed.

Lemma in_add_to s n l k w x : In (k, (w, x)) (add_to s n l) ->
  (k <> s /\ In (k, (w, x)) l) \/ (k = s /\ In (k, (w, x - n)) l).
Proof.
  unfold add_to. rewrite in_map_iff. intros ((k0 & w0 & x0) & H & Hin). cbn in H.
  destruct (Z.eqb_spec k0 s) as [->|Hne]; injection H as <- <- <-.
  - right. split; auto. replace (x0 + n - n) with x0 by lia. auto.
  - left. auto.
Qed.

(** A charge of at most [b] to one that was not ahead keeps the bound for all. *)
Lemma add_ahead s n b l w x : Sound l -> In (s, (w, x)) l ->
  weights l * x - w * served l <= weights l * w -> 0 <= n <= b ->
  Ahead b l -> Ahead b (add_to s n l).
Proof.
  intros [Hnd Hpos] Hin He Hn Ha k w' x' Hk.
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

(** All together are neither ahead nor behind. *)
Lemma ahead_sums l : forall W X,
  total (fun p => W * snd p - fst p * X) l = W * served l - weights l * X.
Proof.
  unfold served, weights. induction l as [|e r IH]; intros W X; cbn; [lia|]. rewrite IH. lia.
Qed.

Lemma total_le f g l : (forall e, In e l -> f (snd e) <= g (snd e)) -> total f l <= total g l.
Proof.
  induction l as [|e r IH]; cbn; intros H; [lia|].
  assert (f (snd e) <= g (snd e)) by auto.
  assert (total f r <= total g r) by auto. lia.
Qed.

(** The room that the others leave. *)
Lemma total_room W b l : total (fun p => W * fst p + (W - fst p) * b) l
  = W * weights l + (W * Z.of_nat (length l) - weights l) * b.
Proof.
  unfold weights. induction l as [|e r IH]; cbn [total length]; [lia|].
  rewrite IH, Nat2Z.inj_succ. nia.
Qed.

Lemma split_total f l e : In e l -> exists r, total f l = f (snd e) + total f r /\
  length l = S (length r) /\ (forall g, total g l = g (snd e) + total g r) /\
  (forall d, In d r -> In d l).
Proof.
  induction l as [|d r IH]; cbn; intros H; [tauto|]. destruct H as [->|H].
  - exists r. repeat split; auto.
  - destruct (IH H) as (q & E1 & E2 & E3 & E4). exists (d :: q). cbn.
    repeat split; [lia|lia| |].
    + intros g. rewrite (E3 g). lia.
    + intros a [->|Ha]; auto.
Qed.

Theorem behind_follows b l s w x : Ahead b l -> In (s, (w, x)) l ->
  w * served l - weights l * x
  <= weights l * (weights l - w)
     + (weights l * (Z.of_nat (length l) - 1) - (weights l - w)) * b.
Proof.
  intros Ha Hin. set (W := weights l) in *. set (X := served l) in *.
  destruct (split_total (fun p => W * snd p - fst p * X) l _ Hin) as (r & E1 & E2 & E3 & E4).
  assert (S0 := ahead_sums l W X). fold X W in S0. rewrite E1 in S0. cbn in S0.
  assert (L : total (fun p => W * snd p - fst p * X) r
              <= total (fun p => W * fst p + (W - fst p) * b) r).
  { apply total_le. intros (k & w0 & x0) Hk. cbn. apply (Ha k w0 x0). auto. }
  rewrite total_room in L.
  assert (Ew : weights r = W - w). { unfold W, weights. rewrite (E3 fst). cbn. lia. }
  rewrite Ew in L. rewrite E2, Nat2Z.inj_succ. nia.
Qed.

(** ** The queue *)

(** Always ready: every competitor is queued. *)
Definition AllQueued (f : fair) : Prop := Forall (fun e => is_queued (snd e) = true) (f_all f).

Definition Whole (f : fair) : Prop :=
  NoDup (map fst (f_all f)) /\
  Forall (fun e => 0 < f_weight (snd e) /\ 0 <= f_remainder (snd e) < f_weight (snd e)) (f_all f).

Lemma whole_sound f : Whole f -> Sound (view (f_all f)).
Proof.
  intros [H1 H2]. split.
  - unfold view. rewrite map_map. cbn. exact H1.
  - unfold view. apply Forall_forall. intros e He. apply in_map_iff in He.
    destruct He as (d & <- & Hd). rewrite Forall_forall in H2. cbn. apply H2. auto.
Qed.

Lemma set_all s g f : f_all (fair_set s g f)
  = map (fun e => if fst e =? s then (fst e, g (snd e)) else e) (f_all f).
Proof. reflexivity. Qed.

(** A change that is no charge. *)
Definition Plain (g : competitor -> competitor) : Prop :=
  forall c, f_weight (g c) = f_weight c /\ f_v (g c) = f_v c /\ f_remainder (g c) = f_remainder c
            /\ f_class (g c) = f_class c.

Lemma plain_view s g f : Plain g -> view (f_all (fair_set s g f)) = view (f_all f).
Proof.
  intros H. rewrite set_all. unfold view. rewrite map_map. apply map_ext. intros e.
  destruct (fst e =? s); auto. cbn. destruct (H (snd e)) as (H1 & H2 & H3 & _).
  unfold exact. rewrite H1, H2, H3. reflexivity.
Qed.

Lemma keys_set s g f : map fst (f_all (fair_set s g f)) = map fst (f_all f).
Proof.
  rewrite set_all, map_map. apply map_ext. intros e. destruct (fst e =? s); reflexivity.
Qed.

Lemma protect_all s f : f_all (protect s f) = f_all f.
Proof. unfold protect. destruct (fair_get f s); reflexivity. Qed.

Lemma find_in s l c : fair_find s l = Some c -> In (s, c) l.
Proof.
  induction l as [|[k d] r IH]; cbn; [discriminate|].
  destruct (Z.eqb_spec k s) as [->|]; intros H; [injection H as ->; auto|auto].
Qed.

Lemma first_in wanted l e : fair_first wanted l = Some e -> In e l /\ wanted (snd e) = true.
Proof.
  induction l as [|d r IH]; cbn; [discriminate|].
  destruct (wanted (snd d)) eqn:E.
  - destruct (fair_first wanted r) as [b|]; [destruct (fair_before (snd b) (snd d))|];
      intros H; injection H as <-; auto; destruct (IH eq_refl); auto.
  - intros H. destruct (IH H). auto.
Qed.

Lemma first_none wanted l : fair_first wanted l = None ->
  forall e, In e l -> wanted (snd e) = false.
Proof.
  induction l as [|d r IH]; cbn; intros H e He; [tauto|].
  destruct (wanted (snd d)) eqn:E.
  - destruct (fair_first wanted r) as [b|]; [destruct (fair_before (snd b) (snd d))|]; discriminate.
  - destruct He as [<-|He]; auto.
Qed.

Lemma queued_compete f : AllQueued f -> competing f = map snd (f_all f).
Proof.
  unfold AllQueued, competing. induction (f_all f) as [|e r IH]; cbn; intros H; auto.
  inversion H; subst. unfold is_queued, competes in *.
  destruct (f_at (snd e)); try discriminate. rewrite IH; auto.
Qed.

Lemma no_delayed f : AllQueued f -> dismiss 8 f = f.
Proof.
  intros H. cbn. unfold first_eligible.
  destruct (fair_first (fun c => is_delayed c && (f_v c <=? fair_now f)) (f_all f)) as [e|] eqn:E;
    auto.
  destruct (first_in _ _ _ E) as [Hin Hw]. unfold AllQueued in H. rewrite Forall_forall in H.
  specialize (H e Hin). unfold is_queued, is_delayed in *.
  destruct (f_at (snd e)); discriminate.
Qed.

Lemma fold_sum (g : competitor -> Z) l : forall n,
  fold_left (fun n c => n + g c) l n = n + fold_right (fun c m => g c + m) 0 l.
Proof. induction l as [|c r IH]; intros n; cbn; [lia|]. rewrite IH. lia. Qed.

Lemma view_weights l : weights (view l) = fold_right (fun c m => f_weight c + m) 0 (map snd l).
Proof.
  unfold weights, view. induction l as [|e r IH]; [reflexivity|].
  cbn [map total fold_right fst snd]. rewrite IH. reflexivity.
Qed.

(** The sum that [fair_now] divides, and the exact service, which is at least that. *)
Lemma moment_served l :
  Forall (fun e => 0 < f_weight (snd e) /\ 0 <= f_remainder (snd e) < f_weight (snd e)) l ->
  fold_right (fun c m => f_weight c * f_v c + m) 0 (map snd l) <= served (view l).
Proof.
  unfold served, view. induction l as [|e r IH]; intros H; [cbn; lia|]. inversion H; subst.
  specialize (IH H3). destruct H2 as [P1 [P2 P3]].
  cbn [map total fold_right fst snd].
  change (exact (snd e)) with (f_weight (snd e) * f_v (snd e) + f_remainder (snd e)). lia.
Qed.

(** The least is never above the average. *)
Lemma least_below l m : l <> [] -> Forall (fun c => 0 < f_weight c /\ m <= f_v c) l ->
  m <= fold_right (fun c n => f_weight c * f_v c + n) 0 l
       / fold_right (fun c n => f_weight c + n) 0 l.
Proof.
  intros Hne H.
  assert (G : 0 <= fold_right (fun c n => f_weight c + n) 0 l /\
    m * fold_right (fun c n => f_weight c + n) 0 l
    <= fold_right (fun c n => f_weight c * f_v c + n) 0 l).
  { clear Hne. induction l as [|c r IH]; cbn; [lia|]. inversion H; subst.
    destruct (IH H3). nia. }
  assert (P : 0 < fold_right (fun c n => f_weight c + n) 0 l).
  { destruct l as [|c r]; [congruence|]. cbn. inversion H; subst.
    assert (0 <= fold_right (fun c n => f_weight c + n) 0 r); [|lia].
    clear - H3. induction r as [|d r IH]; cbn; [lia|]. inversion H3; subst.
    specialize (IH H2). lia. }
  apply Z.div_le_lower_bound; lia.
Qed.

Lemma least_v_spec f m : least_v f = Some m ->
  forall e, In e (f_all f) -> is_queued (snd e) = true -> m <= f_v (snd e).
Proof.
  unfold least_v. intros H.
  assert (G : forall (l : list (Z * competitor)) a,
    fold_left (fun m (e : Z * competitor) => if is_queued (snd e) then
                          match m with
                          | Some x => Some (Z.min x (f_v (snd e)))
                          | None => Some (f_v (snd e))
                          end else m) l a = Some m ->
     (forall x, a = Some x -> m <= x) /\
     (forall e, In e l -> is_queued (snd e) = true -> m <= f_v (snd e))).
  { clear H. induction l as [|d r IH]; cbn; intros a H.
    - subst a. split; [intros x E; injection E as <-; lia|tauto].
    - destruct (IH _ H) as [I1 I2]. destruct (is_queued (snd d)) eqn:E.
      + destruct a as [x|].
        * specialize (I1 _ eq_refl). split; [intros y Ey; injection Ey as <-; lia|].
          intros e [<-|He] Hq; [lia|auto].
        * specialize (I1 _ eq_refl). split; [discriminate|].
          intros e [<-|He] Hq; [lia|auto].
      + split; auto. intros e [<-|He] Hq; [congruence|auto]. }
  apply (G _ None H).
Qed.

(** Who is picked is at or behind the average. *)
Lemma picked_eligible f s g : AllQueued f -> Whole f -> fair_pick f = (Some s, g) ->
  exists c, In (s, c) (f_all f) /\ f_v c <= fair_now f /\
    g = protect s (fair_set s (fset_at FLane) f).
Proof.
  intros Hq [Hnd Hw] H. unfold fair_pick in H. rewrite (no_delayed f Hq) in H.
  destruct (first_eligible is_queued f) as [[k c]|] eqn:E.
  - injection H as <- <-. unfold first_eligible in E. destruct (first_in _ _ _ E) as [Hin Hc].
    exists c. split; auto. cbn in Hc. apply andb_prop in Hc. destruct Hc as [_ Hc].
    split; [lia|reflexivity].
  - destruct (least_v f) as [m|] eqn:Em; [|discriminate].
    destruct (fair_first _ (f_all f)) as [[k c]|] eqn:Ef; [|discriminate].
    injection H as <- <-. destruct (first_in _ _ _ Ef) as [Hin Hc]. cbn in Hc.
    apply andb_prop in Hc. destruct Hc as [_ Hc]. exists c. split; auto. split; auto.
    assert (L : m <= fair_now f); [|lia].
    unfold fair_now, fair_now_of, weight_of. rewrite (queued_compete f Hq).
    rewrite !fold_sum, !Z.add_0_l. apply least_below.
    + intros E0. destruct (f_all f); [destruct Hin|discriminate].
    + apply Forall_forall. intros d Hd. apply in_map_iff in Hd. destruct Hd as (e & <- & He).
      rewrite Forall_forall in Hw. destruct (Hw e He). split; [lia|].
      apply (least_v_spec f m Em e He). unfold AllQueued in Hq. rewrite Forall_forall in Hq. auto.
Qed.

(** So in exact service it is behind its share, up to rounding. *)
Lemma eligible_exact f c s : AllQueued f -> Whole f -> In (s, c) (f_all f) ->
  f_v c <= fair_now f ->
  weights (view (f_all f)) * exact c - f_weight c * served (view (f_all f))
  <= weights (view (f_all f)) * f_weight c.
Proof.
  intros Hq Hwh Hin Hv. assert (Sd := whole_sound f Hwh). destruct Hwh as [Hnd Hw].
  assert (Iv : In (s, (f_weight c, exact c)) (view (f_all f))).
  { unfold view. apply in_map_iff. exists (s, c). auto. }
  assert (P := weights_least _ _ (proj2 Sd) Iv).
  assert (M := moment_served (f_all f) Hw).
  rewrite Forall_forall in Hw. destruct (Hw _ Hin) as [W1 [W2 W3]].
  unfold fair_now, fair_now_of, weight_of in Hv. rewrite (queued_compete f Hq) in Hv.
  rewrite !fold_sum, !Z.add_0_l, <- view_weights in Hv.
  unfold exact. revert P M Hv. generalize (weights (view (f_all f))).
  generalize (served (view (f_all f))).
  generalize (fold_right (fun c m => f_weight c * f_v c + m) 0 (map snd (f_all f))).
  cbn [fst snd] in *. intros A X W P M Hv.
  assert (D : W * (A / W) <= A) by (apply Z.mul_div_le; lia).
  assert (E : W * f_v c <= X) by nia.
  assert (F : f_weight c * (W * f_v c) <= f_weight c * X) by (apply Z.mul_le_mono_nonneg_l; lia).
  assert (R : W * f_remainder c <= W * f_weight c) by (apply Z.mul_le_mono_nonneg_l; lia).
  nia.
Qed.

(** ** A turn: a pick, its charge, and back to the queue *)

Definition turn (used : Z) (g : fair) : fair := fair_requeue (fair_charge used g).

Lemma find_lane s (l : list (Z * competitor)) (h : competitor -> competitor) :
  In s (map fst l) -> NoDup (map fst l) ->
  Forall (fun e => is_queued (snd e) = true) l ->
  (forall c, is_on_lane (h c) = true) ->
  exists c, In (s, c) l /\
    List.find (fun e => is_on_lane (snd e))
      (map (fun e => if fst e =? s then (fst e, h (snd e)) else e) l) = Some (s, h c).
Proof.
  intros Hin Hnd Hq Hh. induction l as [|[k c] r IH]; cbn in *; [tauto|].
  inversion Hnd; subst. inversion Hq; subst. destruct (Z.eqb_spec k s) as [->|Hne]; cbn.
  - exists c. split; auto. rewrite Hh. reflexivity.
  - destruct Hin as [->|Hin]; [congruence|]. destruct (IH Hin H2 H4) as (d & D1 & D2).
    exists d. split; auto. cbn in H3. unfold is_queued, is_on_lane in *.
    destruct (f_at c); try discriminate; exact D2.
Qed.

Lemma same_competitor s c d (l : list (Z * competitor)) : NoDup (map fst l) ->
  In (s, c) l -> In (s, d) l -> c = d.
Proof.
  induction l as [|e r IH]; cbn; [tauto|]. intros Hnd Hc Hd. inversion Hnd; subst.
  destruct Hc as [->|Hc], Hd as [Hd|Hd].
  - congruence.
  - exfalso. apply H1. apply (in_map fst) in Hd. exact Hd.
  - subst e. exfalso. apply H1. apply (in_map fst) in Hc. exact Hc.
  - auto.
Qed.

(** What a turn does to the entry of the picked one, and to no other. *)
Definition charged (used : Z) (renewed : Z) (n : Z) (c : competitor) : competitor :=
  let service := used * units + f_remainder c in
  Competitor FQueue (f_weight c) (f_class c) (service mod f_weight c)
    (f_v c + service / f_weight c) renewed n.

Lemma turn_all f s g used : AllQueued f -> Whole f -> fair_pick f = (Some s, g) ->
  exists c d n, In (s, c) (f_all f) /\ f_v c <= fair_now f /\
    f_all (turn used g) = map (fun e => if fst e =? s then (fst e, charged used d n c) else e)
                            (f_all f).
Proof.
  intros Hq Hw Hp. destruct (picked_eligible f s g Hq Hw Hp) as (c & Hin & Hv & ->).
  destruct Hw as [Hnd Hw].
  set (f1 := fair_set s (fset_at FLane) f).
  assert (Hs : In s (map fst (f_all f))) by (apply (in_map fst) in Hin; exact Hin).
  destruct (find_lane s (f_all f) (fset_at FLane) Hs Hnd Hq) as (c' & Hc' & F1); [reflexivity|].
  assert (c' = c) by (eapply same_competitor; eauto). subst c'.
  assert (O1 : on_lane (protect s f1) = Some (s, fset_at FLane c)).
  { unfold on_lane. rewrite protect_all. unfold f1. rewrite set_all. exact F1. }
  set (service := used * units + f_remainder c).
  set (v := f_v c + service / f_weight c).
  set (dl := if f_deadline c <=? v then v + request_of (protect s f1) (fset_at FLane c)
             else f_deadline c).
  set (h := fun x : competitor => Competitor (f_at x) (f_weight x) (f_class x)
              (service mod f_weight x) v dl (f_arrival x)).
  set (f2 := fair_set s h (protect s f1)).
  assert (A2 : f_all f2
    = map (fun e => if fst e =? s then (fst e, h (fset_at FLane (snd e))) else e)
                            (f_all f)).
  { unfold f2. rewrite set_all, protect_all. unfold f1. rewrite set_all, map_map.
    apply map_ext. intros e. destruct (Z.eqb_spec (fst e) s) as [E|E]; cbn.
    - rewrite E, Z.eqb_refl. reflexivity.
    - destruct (Z.eqb_spec (fst e) s); [congruence|reflexivity]. }
  destruct (find_lane s (f_all f) (fun x => h (fset_at FLane x)) Hs Hnd Hq) as (c2 & Hc2 & F2);
    [reflexivity|].
  assert (O2 : on_lane f2 = Some (s, h (fset_at FLane c2))).
  { unfold on_lane. rewrite A2. exact F2. }
  assert (C : fair_charge used (protect s f1) = f2).
  { unfold fair_charge. rewrite O1. reflexivity. }
  unfold turn. rewrite C. unfold fair_requeue. rewrite O2.
  exists c, dl, (f_arrivals f2). split; auto. split; auto.
  cbn [fair_queue f_all]. rewrite set_all, A2, map_map. apply map_ext_in. intros [k x] Hx. cbn.
  destruct (Z.eqb_spec k s) as [->|E]; cbn.
  - rewrite Z.eqb_refl. assert (x = c) by (eapply same_competitor; eauto). subst x. reflexivity.
  - destruct (Z.eqb_spec k s); [congruence|reflexivity].
Qed.

Lemma charged_exact used d n c : 0 < f_weight c ->
  exact (charged used d n c) = exact c + used * units.
Proof.
  intros H. unfold exact, charged. cbn [f_weight f_v f_remainder].
  assert (E := Z.div_mod (used * units + f_remainder c) (f_weight c)). lia.
Qed.

Lemma turn_keeps f s g used : AllQueued f -> Whole f -> fair_pick f = (Some s, g) ->
  AllQueued (turn used g) /\ Whole (turn used g) /\
  view (f_all (turn used g)) = add_to s (used * units) (view (f_all f)) /\
  exists c, In (s, c) (f_all f) /\ f_v c <= fair_now f.
Proof.
  intros Hq Hw Hp. destruct (turn_all f s g used Hq Hw Hp) as (c & d & n & Hin & Hv & E).
  destruct Hw as [Hnd Hw]. assert (Hc := Hw). rewrite Forall_forall in Hc.
  destruct (Hc _ Hin) as [Hc1 Hc2]. cbn in Hc1, Hc2.
  assert (M : forall P : Z * competitor -> Prop, Forall P (f_all f) -> P (s, charged used d n c) ->
    Forall P (f_all (turn used g))).
  { intros P H1 H2. rewrite E. apply Forall_forall. intros e He. apply in_map_iff in He.
    destruct He as (e0 & <- & He0). rewrite Forall_forall in H1.
    destruct (Z.eqb_spec (fst e0) s) as [->|]; auto. }
  split; [apply M; auto|]. split; [split|split].
  - rewrite E, map_map.
    replace (map _ (f_all f)) with (map fst (f_all f)); auto.
    apply map_ext. intros e. destruct (fst e =? s); reflexivity.
  - apply M; auto. cbn. split; auto. apply Z.mod_pos_bound. auto.
  - rewrite E. unfold view, add_to. rewrite !map_map. apply map_ext_in. intros [k x] Hx. cbn.
    destruct (Z.eqb_spec k s) as [->|]; auto. cbn.
    assert (x = c) by (eapply same_competitor; eauto). subst x.
    rewrite charged_exact; auto.
  - eauto.
Qed.

(** Any number of turns, each of at most [b] cycles. *)
Inductive turns (b : Z) (f : fair) : fair -> Prop :=
| no_turn : turns b f f
| one_turn g s h used : turns b f g -> fair_pick g = (Some s, h) -> 0 <= used <= b ->
    turns b f (turn used h).

Theorem fair_ahead b f g : AllQueued f -> Whole f -> Ahead (b * units) (view (f_all f)) ->
  turns b f g ->
  AllQueued g /\ Whole g /\ Ahead (b * units) (view (f_all g)).
Proof.
  intros Hq Hw Ha H. induction H as [|g s h used _ (Gq & Gw & Ga) Hp Hu]; auto.
  destruct (turn_keeps g s h used Gq Gw Hp) as (K1 & K2 & K3 & c & Hin & Hv).
  split; auto. split; auto. rewrite K3.
  apply (add_ahead s _ _ _ (f_weight c) (exact c)); auto.
  - apply whole_sound. auto.
  - unfold view. apply in_map_iff. exists (s, c). auto.
  - apply (eligible_exact g c s); auto.
  - assert (0 < units) by reflexivity. nia.
Qed.

(** Equal virtual times are a start. *)
Theorem equal_start b f v : Whole f -> 0 <= b ->
  Forall (fun e => f_v (snd e) = v /\ f_remainder (snd e) = 0) (f_all f) ->
  Ahead (b * units) (view (f_all f)).
Proof.
  intros Hw Hb H s w x Hin.
  assert (E : forall l, Forall (fun e => f_v (snd e) = v /\ f_remainder (snd e) = 0) l ->
    served (view l) = v * weights (view l)).
  { unfold served, weights, view. induction l as [|e r IH]; intros Hl; [cbn; lia|].
    inversion Hl; subst. cbn [map total fst snd]. rewrite IH by auto.
    change (exact (snd e)) with (f_weight (snd e) * f_v (snd e) + f_remainder (snd e)).
    destruct H2 as [-> ->]. lia. }
  rewrite E by auto. unfold view in Hin. apply in_map_iff in Hin.
  destruct Hin as (e & He & Hin). injection He as <- <- <-.
  assert (Sd := whole_sound f Hw).
  assert (Iv : In (fst e, (f_weight (snd e), exact (snd e))) (view (f_all f))).
  { unfold view. apply in_map_iff. eauto. }
  assert (P := weights_least _ _ (proj2 Sd) Iv).
  rewrite Forall_forall in H. destruct (H e Hin) as [Ev R]. unfold exact. rewrite Ev, R.
  revert P. generalize (weights (view (f_all f))). cbn [fst snd]. intros W P.
  assert (U : 0 <= b * units) by (apply Z.mul_nonneg_nonneg; [lia|discriminate]).
  assert (0 <= (W - f_weight (snd e)) * (b * units)) by (apply Z.mul_nonneg_nonneg; lia).
  assert (0 <= W * f_weight (snd e)) by (apply Z.mul_nonneg_nonneg; lia).
  lia.
Qed.

(** Nobody falls behind its share by more than n - 1 slices and gaps, and rounding. *)
Theorem fair_behind b f g s c : AllQueued f -> Whole f -> Ahead (b * units) (view (f_all f)) ->
  turns b f g -> In (s, c) (f_all g) ->
  let W := weights (view (f_all g)) in
  f_weight c * served (view (f_all g)) - W * exact c
  <= W * (W - f_weight c)
     + (W * (Z.of_nat (length (f_all g)) - 1) - (W - f_weight c)) * (b * units).
Proof.
  intros Hq Hw Ha Ht Hin W. destruct (fair_ahead b f g Hq Hw Ha Ht) as (_ & _ & G).
  assert (Iv : In (s, (f_weight c, exact c)) (view (f_all g))).
  { unfold view. apply in_map_iff. exists (s, c). auto. }
  assert (B := behind_follows _ _ _ _ _ G Iv).
  assert (L : length (view (f_all g)) = length (f_all g)) by apply map_length.
  rewrite L in B. exact B.
Qed.

(** ** The bound of a slice *)

(** A slice's bound is at most the shortest slice of those that compete. *)
Theorem bound_is_a_slice f s g : AllQueued f -> Whole f -> fair_pick f = (Some s, g) ->
  0 <= least_slice (fair_set s (fset_at FLane) f) ->
  fair_bound g <= least_slice (fair_set s (fset_at FLane) f).
Proof.
  intros Hq Hw Hp Hl. destruct (picked_eligible f s g Hq Hw Hp) as (c & Hin & Hv & ->).
  destruct Hw as [Hnd Hw].
  assert (Hs : In s (map fst (f_all f))) by (apply (in_map fst) in Hin; exact Hin).
  destruct (find_lane s (f_all f) (fset_at FLane) Hs Hnd Hq) as (c' & Hc' & F1); [reflexivity|].
  assert (c' = c) by (eapply same_competitor; eauto). subst c'.
  set (f1 := fair_set s (fset_at FLane) f) in *.
  assert (O : on_lane (protect s f1) = Some (s, fset_at FLane c)).
  { unfold on_lane. rewrite protect_all. exact F1. }
  unfold fair_bound. rewrite O. cbn [f_v f_weight f_remainder fset_at].
  rewrite Forall_forall in Hw. destruct (Hw _ Hin) as [W1 W2]. cbn in W1, W2.
  assert (P : f_protected (protect s f1) <= f_v c + least_slice f1 * units / f_weight c).
  { unfold protect.
    assert (Gt : fair_get f1 s = Some (fset_at FLane c)).
    { unfold fair_get, f1. rewrite set_all. clear - Hin Hnd.
      induction (f_all f) as [|[k d] r IH]; cbn in *; [tauto|]. inversion Hnd; subst.
      destruct (Z.eqb_spec k s) as [->|Hne]; cbn.
      - rewrite Z.eqb_refl. destruct Hin as [E|Hin]; [congruence|].
        exfalso. apply H1. apply (in_map fst) in Hin. exact Hin.
      - destruct (Z.eqb_spec k s); [congruence|]. destruct Hin as [E|Hin]; [congruence|auto]. }
    rewrite Gt. cbn. lia. }
  destruct (f_protected (protect s f1) <=? f_v c); [exact Hl|].
  assert (U : 0 < units) by reflexivity.
  apply Z.lt_succ_r. apply Z.div_lt_upper_bound; auto.
  assert (D : f_weight c * (least_slice f1 * units / f_weight c) <= least_slice f1 * units)
    by (apply Z.mul_div_le; lia).
  assert (E : (f_protected (protect s f1) - f_v c) * f_weight c
              <= f_weight c * (least_slice f1 * units / f_weight c)).
  { rewrite Z.mul_comm. apply Z.mul_le_mono_nonneg_l; lia. }
  lia.
Qed.
