(** The admission test with the numbers and in the order of the code (crates/kernel/src/context/
    admission.rs), and what it is worth. The oracle compares [shipped_admit] with the kernel's
    function over random sets.

    - [shipped_is_every_release]: it is [admit] with the terms of [every_release].
    - [kernel_terms_valid]: the terms that a lane of the kernel has ([lane_terms]) are valid.
    - [sporadic_windows]: jobs of a context that are released at least a period apart, each of at
      most the budget, release at most the budget in any window of one period.
    - [shipped_meets_deadlines]: so a set that the code's test accepts on a lane meets its
      deadlines, if its jobs are such jobs, the lane serves the earliest deadline first where it
      loses no time, and it loses no more than one blocking time, one wait per wave, an overrun
      per context that is due, and the releases of all contexts.

    Numbers are unbounded here; the code saturates at 2^64, and stops at 4,096 points as this
    does. Premises that remain: the losses, and that a ring with several refills is one job per
    period (it can be released several times in one). *)

From Coq Require Import ZArith List Bool Lia.
From Wavelock Require Import Admission.
Import ListNotations.
Open Scope Z_scope.

Record lane_terms := LaneTerms {
  l_blocking : Z; l_overrun : Z; l_release : Z;
  l_boundary : option (Z * Z);   (** an interval, and what is lost at its start and each end *)
  l_cap : Z }.

(** `Terms::demand`. *)
Definition shipped_demand (k : lane_terms) (cs : list demand) (t : Z) : Z :=
  let repeated every cost := (t / Z.max every 1 + 1) * cost in
  let boundaries := match l_boundary k with Some (e, c) => repeated e c | None => 0 end in
  fold_left (fun sum c =>
      let releases := repeated (d_period c) (l_release k) in
      if t <? d_deadline c then sum + releases
      else
        let activations := (t - d_deadline c) / Z.max (d_period c) 1 + 1 in
        sum + releases + activations * d_budget c + l_overrun k)
    cs (l_blocking k + boundaries).

(** `last_deadline`; 0 if there is none. *)
Definition shipped_last (cs : list demand) (limit : Z) : Z :=
  fold_left (fun m c =>
      if d_deadline c <=? limit
      then Z.max m (limit - (limit - d_deadline c) mod Z.max (d_period c) 1) else m) cs 0.

Fixpoint shipped_descend (k : lane_terms) (cs : list demand) (points : nat) (before : Z) : bool :=
  match points with
  | O => false
  | S n =>
      let at_ := shipped_last cs before in
      if at_ =? 0 then true
      else
        let demand := shipped_demand k cs at_ in
        if at_ * l_cap k <? demand * 1000 then false
        else shipped_descend k cs n (div_up (demand * 1000) (Z.max (l_cap k) 1) - 1)
  end.

(** What the loop over the contexts adds up. *)
Record sums := Sums { u_util : Z; u_density : Z; u_offset : Z; u_nearest : Z; u_fixed : Z }.

Definition shipped_part (a b : Z) : Z := div_up (a * one) (Z.max b 1).

Definition add_context (k : lane_terms) (u : sums) (c : demand) : sums :=
  let releases := shipped_part (l_release k) (d_period c) in
  Sums (u_util u + (shipped_part (d_budget c) (d_period c) + releases))
    (u_density u + (shipped_part (d_budget c) (d_deadline c) + releases))
    (u_offset u + div_up (d_budget c * (d_period c - d_deadline c)) (Z.max (d_period c) 1))
    (Z.min (u_nearest u) (d_deadline c))
    (u_fixed u + (l_overrun k + l_release k)).

Definition farthest : Z := 2 ^ 64 - 1.

(** `admit`. *)
Definition shipped_admit (k : lane_terms) (cs : list demand) : bool :=
  let cap := one * l_cap k / 1000 in
  let '(every, cost) := match l_boundary k with Some b => b | None => (1, 0) end in
  let first := shipped_part cost every in
  let u := fold_left (add_context k) cs
             (Sums first first 0 farthest (l_blocking k + cost)) in
  if (u_nearest u =? farthest)
     || (u_density u + div_up (u_fixed u * one) (Z.max (u_nearest u) 1) <=? cap) then true
  else if (cap <? u_util u) || ((u_util u =? cap) && (0 <? u_fixed u + u_offset u)) then false
  else if u_fixed u + u_offset u =? 0 then true
  else shipped_descend k cs 4096 ((u_fixed u + u_offset u) * one / (cap - u_util u) + 1).

(** The terms of [Admission] before every release counts. *)
Definition terms_of (k : lane_terms) : terms :=
  Terms (l_blocking k) (l_overrun k) (l_release k)
    match l_boundary k with Some b => [b] | None => [] end (l_cap k).

Definition Near (cs : list demand) : Prop := Forall (fun c => d_deadline c < farthest) cs.

(** ** The loops *)

Lemma fold_add {A} (f : A -> Z) (g : Z -> A -> Z) l : (forall m x, In x l -> g m x = m + f x) ->
  forall m, fold_left g l m = m + sum f l.
Proof.
  induction l as [|x r IH]; intros H m; cbn; [lia|]. rewrite IH by (intros; apply H; cbn; auto).
  rewrite H by (cbn; auto). lia.
Qed.

Lemma sum_app {A} (f : A -> Z) l m : sum f (l ++ m) = sum f l + sum f m.
Proof. induction l as [|x r IH]; cbn; lia. Qed.

Lemma sum_map {A B} (g : A -> B) (f : B -> Z) l : sum f (map g l) = sum (fun x => f (g x)) l.
Proof. induction l as [|x r IH]; cbn; congruence. Qed.

Lemma sum_ext {A} (f g : A -> Z) l : (forall x, In x l -> f x = g x) -> sum f l = sum g l.
Proof.
  induction l as [|x r IH]; cbn; intros H; auto. rewrite (H x) by auto. rewrite IH; auto.
Qed.

Lemma demand_is k cs t : valid_terms (terms_of k) -> Forall valid_demand cs ->
  shipped_demand k cs t = demand_by (every_release (terms_of k) cs) cs t.
Proof.
  intros (_ & _ & _ & Vb & _) F. unfold shipped_demand.
  rewrite (fold_add (fun c => (t / d_period c + 1) * l_release k
             + demand_of (every_release (terms_of k) cs) t c)).
  - unfold demand_by, boundary. cbn [every_release t_boundaries t_blocking].
    rewrite sum_app, sum_map, sum_plus. cbn [fst snd].
    unfold terms_of in Vb |- *. cbn [t_boundaries t_blocking t_release] in Vb |- *.
    destruct (l_boundary k) as [[e c]|]; cbn [sum fst snd]; [|lia].
    inversion Vb as [|? ? [P1 P2] _]; subst. cbn [fst] in P1.
    replace (Z.max e 1) with e by lia. lia.
  - intros m c Hin. rewrite Forall_forall in F. destruct (F c Hin) as (B & D & P).
    replace (Z.max (d_period c) 1) with (d_period c) by lia.
    unfold demand_of. cbn [every_release t_release t_overrun terms_of].
    destruct (Z.ltb_spec t (d_deadline c)); destruct (Z.leb_spec (d_deadline c) t); lia.
Qed.

Lemma last_is cs limit : Forall valid_demand cs -> shipped_last cs limit = last_deadline cs limit.
Proof.
  intros F. unfold shipped_last, last_deadline.
  assert (G : forall m, 0 <= m -> fold_left (fun m c =>
      if d_deadline c <=? limit
      then Z.max m (limit - (limit - d_deadline c) mod Z.max (d_period c) 1) else m) cs m
    = Z.max m (fold_right (fun c m => Z.max (last_of limit c) m) 0 cs)).
  { induction F as [|c r (B & D & P) F IH]; cbn [fold_left fold_right]; intros m Hm; [lia|].
    unfold last_of at 1. destruct (Z.leb_spec (d_deadline c) limit).
    - rewrite IH by lia. replace (Z.max (d_period c) 1) with (d_period c) by lia. lia.
    - rewrite IH by lia.
      assert (0 <= fold_right (fun c m => Z.max (last_of limit c) m) 0 r).
      { clear. induction r as [|c r IH]; cbn; lia. }
      lia. }
  rewrite G by lia.
  assert (0 <= fold_right (fun c m => Z.max (last_of limit c) m) 0 cs).
  { clear. induction cs as [|c r IH]; cbn; lia. }
  lia.
Qed.

Lemma descend_is k cs : valid_terms (terms_of k) -> Forall valid_demand cs -> forall n limit,
  shipped_descend k cs n limit = descend (every_release (terms_of k) cs) cs n limit.
Proof.
  intros V F. assert (C : 0 < l_cap k) by (destruct V as (_ & _ & _ & _ & C); cbn in C; lia).
  induction n as [|n IH]; intros limit; [reflexivity|]. cbn [shipped_descend descend].
  rewrite (last_is cs limit F). destruct (last_deadline cs limit =? 0); auto.
  rewrite (demand_is k cs _ V F). unfold fits_at.
  change (t_cap (every_release (terms_of k) cs)) with (l_cap k).
  set (d := demand_by _ cs _). set (t := last_deadline cs limit).
  destruct (Z.ltb_spec (t * l_cap k) (d * 1000)); destruct (Z.leb_spec (d * 1000) (t * l_cap k));
    try lia; auto.
  replace (Z.max (l_cap k) 1) with (l_cap k) by lia. apply IH.
Qed.

Lemma sums_are k cs : Forall valid_demand cs -> forall u,
  fold_left (add_context k) cs u =
  Sums
    (u_util u + sum (fun c => part (d_budget c) (d_period c) + part (l_release k) (d_period c)) cs)
    (u_density u
     + sum (fun c => part (d_budget c) (d_deadline c) + part (l_release k) (d_period c)) cs)
    (u_offset u + sum (fun c => div_up (d_budget c * (d_period c - d_deadline c)) (d_period c)) cs)
    (fold_right (fun c m => Z.min (d_deadline c) m) (u_nearest u) cs)
    (u_fixed u + sum (fun c => l_overrun k + l_release k) cs).
Proof.
  intros F. induction F as [|c r (B & D & P) F IH]; intros u; cbn [fold_left sum fold_right].
  - destruct u; cbn. f_equal; lia.
  - rewrite IH. unfold add_context, shipped_part, part.
    cbn [u_util u_density u_offset u_nearest u_fixed].
    replace (Z.max (d_period c) 1) with (d_period c) by lia.
    replace (Z.max (d_deadline c) 1) with (d_deadline c) by lia.
    f_equal; try lia.
    assert (G : forall l a b, fold_right (fun c m => Z.min (d_deadline c) m) (Z.min a b) l
                = Z.min b (fold_right (fun c m => Z.min (d_deadline c) m) a l)).
    { induction l as [|x l IHl]; intros a b; cbn; [lia|]. rewrite IHl. lia. }
    apply G.
Qed.

Lemma nearest_is cs : Near cs ->
  (nearest cs farthest =? farthest) = match cs with [] => true | _ => false end.
Proof.
  intros F. unfold nearest. destruct F as [|c r H F]; [reflexivity|]. cbn [fold_right].
  apply Z.eqb_neq. lia.
Qed.

Lemma nearest_positive cs : Forall valid_demand cs -> 1 <= nearest cs farthest.
Proof.
  intros F. unfold nearest. induction F as [|c r (B & D & P) F IH]; cbn [fold_right];
    [unfold farthest; lia | lia].
Qed.

(** The code's test is [admit] with every release counted. *)
Theorem shipped_is_every_release k cs : valid_terms (terms_of k) -> Forall valid_demand cs ->
  Near cs -> shipped_admit k cs = admit (every_release (terms_of k) cs) cs.
Proof.
  intros V F N. unfold shipped_admit, admit.
  set (e := every_release (terms_of k) cs).
  set (b := match l_boundary k with Some b => b | None => (1, 0) end).
  destruct b as [every cost] eqn:Eb.
  rewrite (sums_are k cs F). cbn [u_util u_density u_offset u_nearest u_fixed].
  assert (Bd : shipped_part cost every
               = sum (fun b => part (snd b) (fst b)) (t_boundaries (terms_of k))
               /\ cost = sum snd (t_boundaries (terms_of k))).
  { destruct V as (_ & _ & _ & Vb & _). unfold terms_of in *. cbn [t_boundaries] in *.
    unfold b in Eb. clear b.
    destruct (l_boundary k) as [[x y]|]; injection Eb as <- <-; cbn [sum fst snd].
    - inversion Vb as [|? ? [P1 P2] _]; subst. cbn [fst] in P1. unfold shipped_part, part.
      replace (Z.max x 1) with x by lia. lia.
    - unfold shipped_part, part, div_up. cbn. lia. }
  destruct Bd as [B1 B2].
  assert (U : shipped_part cost every
     + sum (fun c => part (d_budget c) (d_period c) + part (l_release k) (d_period c)) cs
     = utilisation e cs).
  { unfold utilisation, boundary_part, e. cbn [every_release t_boundaries].
    rewrite sum_app, sum_map, B1, sum_plus. cbn [fst snd].
    rewrite (sum_ext (fun c => part (budget_of _ c) (d_period c))
               (fun c => part (d_budget c) (d_period c))).
    - cbn [terms_of t_release]. lia.
    - intros c _. unfold budget_of. cbn. f_equal. lia. }
  assert (D : shipped_part cost every
     + sum (fun c => part (d_budget c) (d_deadline c) + part (l_release k) (d_period c)) cs
     = density e cs).
  { unfold density, boundary_part, e. cbn [every_release t_boundaries].
    rewrite sum_app, sum_map, B1, sum_plus. cbn [fst snd].
    rewrite (sum_ext (fun c => part (budget_of _ c) (d_deadline c))
               (fun c => part (d_budget c) (d_deadline c))).
    - cbn [terms_of t_release]. lia.
    - intros c _. unfold budget_of. cbn. f_equal. lia. }
  assert (O : 0 + sum (fun c => div_up (d_budget c * (d_period c - d_deadline c)) (d_period c)) cs
     = offset e cs).
  { unfold offset. rewrite Z.add_0_l. apply sum_ext. intros c _. unfold budget_of, e. cbn.
    f_equal. f_equal. lia. }
  assert (X : l_blocking k + cost + sum (fun _ => l_overrun k + l_release k) cs = fixed e cs).
  { unfold fixed, boundary_once, e. cbn [every_release t_boundaries t_blocking t_overrun].
    rewrite sum_app, sum_map, B2, sum_plus.
    cbn [snd terms_of t_blocking t_overrun t_release]. lia. }
  rewrite U, D, O, X.
  change (fold_right (fun c m => Z.min (d_deadline c) m) farthest cs) with (nearest cs farthest).
  rewrite (nearest_is cs N). assert (P := nearest_positive cs F).
  replace (Z.max (nearest cs farthest) 1) with (nearest cs farthest) by lia.
  change (t_cap e) with (l_cap k). change (2 ^ 64 - 1) with farthest.
  rewrite (descend_is k cs V F). fold e.
  destruct cs; cbn [orb]; reflexivity.
Qed.

(** ** A lane of the kernel *)

(** `Tier::terms`: [gap] is the lane's longest gap, [wave] its waves' length in cycles, and the
    costs are of a switch, a refill and a timer. *)
Definition kernel_lane (gap switch refill timer cap : Z) (wave : option Z) : lane_terms :=
  LaneTerms (gap + switch) gap (refill + timer)
    match wave with Some w => Some (w, gap) | None => None end cap.

Theorem kernel_terms_valid gap switch refill timer cap wave :
  0 <= gap -> 0 <= switch -> 0 <= refill -> 0 <= timer -> 0 < cap <= 1000 ->
  (forall w, wave = Some w -> 0 < w) ->
  valid_terms (terms_of (kernel_lane gap switch refill timer cap wave)).
Proof.
  intros G S R T C W. unfold valid_terms, kernel_lane, terms_of. cbn.
  repeat split; try lia. destruct wave as [w|]; constructor; auto. split; cbn; auto.
Qed.

(** ** Jobs a period apart *)

Definition Sporadic (cs : list demand) (jobs : list job) : Prop :=
  forall i j, (i < length jobs)%nat -> (j < length jobs)%nat ->
    j_context (job_at jobs i) = j_context (job_at jobs j) ->
    Z.of_nat (j_cost (job_at jobs i)) <= d_budget (context_of cs jobs i) /\
    (i <> j ->
     d_period (context_of cs jobs i)
     <= Z.abs (Z.of_nat (j_release (job_at jobs i)) - Z.of_nat (j_release (job_at jobs j)))).

Lemma at_most_one {A} (p : A -> bool) (f : A -> Z) (b : Z) l : NoDup l -> 0 <= b ->
  (forall x, In x l -> p x = true -> 0 <= f x <= b) ->
  (forall x y, In x l -> In y l -> p x = true -> p y = true -> x = y) ->
  sum (fun x => if p x then f x else 0) l <= b.
Proof.
  intros Nd Hb. induction Nd as [|x r Hx Nd IH]; intros Hf Hu; cbn; [lia|].
  assert (Rest : sum (fun x => if p x then f x else 0) r <= b).
  { apply IH.
    - intros y Hy. apply Hf. cbn. auto.
    - intros y z Hy Hz. apply Hu; cbn; auto. }
  destruct (p x) eqn:E; [|lia].
  assert (Z0 : sum (fun x => if p x then f x else 0) r = 0).
  { transitivity (sum (fun _ : A => 0) r); [|apply sum_zero]. apply sum_ext. intros y Hy.
    destruct (p y) eqn:Ey; auto.
    exfalso. assert (Exy : x = y) by (apply Hu; cbn; auto). subst y. auto. }
  assert (H := Hf x (or_introl eq_refl) E). lia.
Qed.

Theorem sporadic_windows cs jobs c x : Forall valid_demand cs -> Sporadic cs jobs ->
  (c < length cs)%nat ->
  released jobs c x (x + d_period (context_at cs c)) <= d_budget (context_at cs c).
Proof.
  intros F H C. assert (V : valid_demand (context_at cs c)).
  { unfold context_at. eapply Forall_forall; [exact F | apply nth_In; auto]. }
  destruct V as (B & D & P). unfold released. apply at_most_one; [apply seq_NoDup | lia | |].
  - intros i I E. apply in_seq in I. rewrite !andb_true_iff in E. destruct E as [[E _] _].
    apply Nat.eqb_eq in E. destruct (H i i ltac:(lia) ltac:(lia) eq_refl) as [H1 _].
    unfold context_of in H1. rewrite E in H1. lia.
  - intros i j I J E1 E2. apply in_seq in I. apply in_seq in J.
    rewrite !andb_true_iff in E1, E2. destruct E1 as [[E1 A1] A2], E2 as [[E2 B1] B2].
    apply Nat.eqb_eq in E1. apply Nat.eqb_eq in E2.
    destruct (Nat.eq_dec i j) as [|Ne]; auto. exfalso.
    destruct (H i j ltac:(lia) ltac:(lia) ltac:(congruence)) as [_ H2]. specialize (H2 Ne).
    unfold context_of in H2. rewrite E1 in H2. lia.
Qed.

(** What the code's test accepts on a lane meets its deadlines. *)
Theorem shipped_meets_deadlines gap switch refill timer cap wave cs jobs sched lost :
  0 <= gap -> 0 <= switch -> 0 <= refill -> 0 <= timer -> 0 < cap <= 1000 ->
  (forall w, wave = Some w -> 0 < w) ->
  Forall valid_demand cs -> Near cs ->
  let k := kernel_lane gap switch refill timer cap wave in
  (forall i, (i < length jobs)%nat ->
     (j_context (job_at jobs i) < length cs)%nat
     /\ Z.of_nat (j_due (job_at jobs i))
        = Z.of_nat (j_release (job_at jobs i)) + d_deadline (context_of cs jobs i)) ->
  Sporadic cs jobs ->
  (forall t i, sched t = Some i -> pending jobs sched i t = true) ->
  (forall t i, pending jobs sched i t = true ->
     lost t = true
     \/ exists j, sched t = Some j /\ (j_due (job_at jobs j) <= j_due (job_at jobs i))%nat) ->
  (forall i from n, (i < length jobs)%nat ->
     Begins jobs sched from (j_due (job_at jobs i)) ->
     Z.of_nat (lost_in lost from n)
     <= gap + switch
        + match wave with Some w => (Z.of_nat n / w + 1) * gap | None => 0 end
        + sum (fun c => (Z.of_nat n / d_period c + 1) * (refill + timer)) cs
        + sum (fun c => if d_deadline c <=? Z.of_nat n then gap else 0) cs) ->
  shipped_admit k cs = true ->
  forall i, (i < length jobs)%nat ->
  served sched i (j_due (job_at jobs i)) = j_cost (job_at jobs i).
Proof.
  intros G S R T C W F N k Jo Sp Se Ea Lo A.
  assert (V := kernel_terms_valid gap switch refill timer cap wave G S R T C W). fold k in V.
  rewrite (shipped_is_every_release k cs V F N) in A.
  apply (every_release_meets (terms_of k) cs jobs sched lost V F Jo); auto.
  - intros c x Hc. apply sporadic_windows; auto.
  - intros i from n I B. etransitivity; [exact (Lo i from n I B)|].
    unfold k, kernel_lane, terms_of, boundary. cbn. destruct wave as [w|]; cbn; lia.
Qed.

(** The set of [Admission.late_set] on a lane with a longest gap of 50: beside 50 others it is
    refused, alone it is admitted. *)
Example shipped_refuses : shipped_admit (kernel_lane 50 24 12 8 950 None) (late_set 50) = false.
Proof. vm_compute; reflexivity. Qed.
Example shipped_admits : shipped_admit (kernel_lane 50 24 12 8 950 None) (late_set 0) = true.
Proof. vm_compute; reflexivity. Qed.
