(** The refills of one context (crates/kernel/src/context/refill.rs; cpu-authority, phase E): a
    sporadic server over unbounded integers.

    Main theorems:
    - [run_total]: the refills sum to the budget, always;
    - [run_sound]: they are ordered, apart, positive, at least one and at most the capacity;
    - [window]: the use in any window of one period is less than budget + G, for any schedule of
      activations and charges in which each slice overruns the head refill by less than G;
    - [revoked_never_runs]: a revoked context never runs again.

    The argument: [supply x] is the most that the refills allow to be used before time [x]. A use of
    the head moves a part of the supply one period later, so "used in the last period + supply" does
    not change at any [x]; activating, merging and delaying only make the supply later. An overrun
    is charged to later refills, as if it had been used when those become usable; so real use is
    ahead of charged use by one overrun at most. *)

From Coq Require Import ZArith List Bool Lia.
Import ListNotations.
Open Scope Z_scope.

(** Amount, and the clock from which it is usable. *)
Notation refill := (Z * Z)%type (only parsing).

(** The part of [amount] units, one per cycle from [start] on, that lies before [x]. *)
Definition part (x start amount : Z) : Z := Z.max 0 (Z.min amount (x - start)).

Fixpoint supply (x : Z) (l : list refill) : Z :=
  match l with [] => 0 | (a, t) :: r => part x t a + supply x r end.

Fixpoint total (l : list refill) : Z :=
  match l with [] => 0 | (a, _) :: r => a + total r end.

(** Uses: start and length. What was used before [x]. *)
Fixpoint used_before (x : Z) (us : list (Z * Z)) : Z :=
  match us with [] => 0 | (s, u) :: r => part x s u + used_before x r end.

(** What was used in the window from [x - period] to [x]. *)
Definition used_in (x period : Z) (us : list (Z * Z)) : Z :=
  used_before x us - used_before (x - period) us.

(** Positive, ordered, apart. *)
Fixpoint Sound (l : list refill) : Prop :=
  match l with
  | [] => True
  | (a, t) :: r =>
      0 < a /\ 0 <= t /\ match r with [] => True | (_, t2) :: _ => t + a <= t2 end /\ Sound r
  end.

Definition head_at (l : list refill) : Z := match l with [] => 0 | (_, t) :: _ => t end.
Definition head_amount (l : list refill) : Z := match l with [] => 0 | (a, _) :: _ => a end.

Section Ring.

Variables period least : Z.
Variable capacity : nat.

(** Appends at the tail. Touching refills are merged; in a full ring the tail is delayed. *)
Fixpoint append (room : bool) (l : list refill) (new : refill) : list refill :=
  match l with
  | [] => [new]
  | [(a, t)] =>
      if snd new <=? t + a then [(a + fst new, t)]
      else if room then [(a, t); new]
      else [(a + fst new, snd new - a)]
  | x :: r => x :: append room r new
  end.

Definition append_to (l : list refill) (new : refill) : list refill :=
  append (Nat.ltb (length l) capacity) l new.

(** Merges entries into the head that its end reaches. *)
Fixpoint merge_reached (a t : Z) (r : list refill) : list refill :=
  match r with
  | [] => [(a, t)]
  | (a2, t2) :: r2 => if t2 <=? t + a then merge_reached (a + a2) t r2 else (a, t) :: r
  end.

(** A head too small to enforce joins the next. *)
Fixpoint merge_small (a t : Z) (r : list refill) : list refill :=
  if a <? least then
    match r with
    | [] => [(a, t)]
    | (a2, t2) :: r2 => merge_small (a2 + a) (Z.max 0 (t2 - a)) r2
    end
  else (a, t) :: r.

Definition reached (l : list refill) : list refill :=
  match l with [] => [] | (a, t) :: r => merge_reached a t r end.

Definition small (l : list refill) : list refill :=
  match l with [] => [] | (a, t) :: r => merge_small a t r end.

Definition activate (now : Z) (l : list refill) : list refill :=
  match l with
  | [] => []
  | (a, t) :: r => if t <=? now then merge_reached a now r else l
  end.

(** The head is used up: it is replenished a period later. *)
Definition use_head (a t : Z) (r : list refill) : list refill :=
  match r with [] => [(a, t + period)] | _ => append_to r (a, t + period) end.

(** Takes [left] out of the refills; also gives the times for which it was taken. *)
Fixpoint consume (fuel : nat) (left : Z) (l : list refill) (v : list (Z * Z))
    : list refill * list (Z * Z) :=
  match fuel, l with
  | S k, (a, t) :: r =>
      if a <=? left then consume k (left - a) (use_head a t r) ((t, a) :: v)
      else if 0 <? left then
        (append_to ((a - left, t + left) :: r) (left, t + period), (t, left) :: v)
      else (l, v)
  | _, _ => (l, v)
  end.

Definition charge_noting (used : Z) (l : list refill) (v : list (Z * Z))
    : list refill * list (Z * Z) :=
  let '(l1, v1) := consume (Z.to_nat used) used l v in (reached (small l1), v1).

Definition charge (used : Z) (l : list refill) : list refill := fst (charge_noting used l []).

(** ** Appending *)

Lemma append_supply : forall x room l new, l <> [] -> Sound l -> 0 < fst new ->
  supply x (append room l new) <= supply x l + part x (snd new) (fst new).
Proof.
  intros x room l [b u] N So B; simpl in B; induction l as [|[a t] r IH]; [congruence |].
  destruct r as [|y r2].
  - simpl in *; destruct So as (A & T & _).
    destruct (u <=? t + a) eqn:E; [| destruct room]; simpl; unfold part; lia.
  - destruct So as (A & T & Or & So).
    change (append room ((a, t) :: y :: r2) (b, u))
      with ((a, t) :: append room (y :: r2) (b, u)).
    cbn [supply]; specialize (IH ltac:(discriminate) So); cbn [supply] in IH; lia.
Qed.

Lemma append_total : forall room l new, l <> [] ->
  total (append room l new) = total l + fst new.
Proof.
  intros room l [b u] N; induction l as [|[a t] r IH]; [congruence |].
  destruct r as [|y r2].
  - simpl; destruct (u <=? t + a); [| destruct room]; simpl; lia.
  - change (append room ((a, t) :: y :: r2) (b, u))
      with ((a, t) :: append room (y :: r2) (b, u)).
    cbn [total]; rewrite IH by discriminate; cbn [total]; lia.
Qed.

(** The head keeps its time, unless the ring is full and it is the tail: then it is later. *)
Lemma append_head : forall room l new, l <> [] -> head_at l <= head_at (append room l new).
Proof.
  intros room [|[a t] [|y r]] [b u] N; [congruence | | simpl; lia].
  simpl; destruct (u <=? t + a) eqn:E; [| destruct room]; simpl; lia.
Qed.

Lemma append_sound : forall room l new, l <> [] -> Sound l -> 0 < fst new -> 0 <= snd new ->
  Sound (append room l new).
Proof.
  intros room l [b u] N So B U; simpl in B, U; induction l as [|[a t] r IH]; [congruence |].
  destruct r as [|[a2 t2] r2].
  - simpl in *; destruct (u <=? t + a) eqn:E; [| destruct room]; simpl; intuition lia.
  - destruct So as (A & T & Or & So).
    change (append room ((a, t) :: (a2, t2) :: r2) (b, u))
      with ((a, t) :: append room ((a2, t2) :: r2) (b, u)).
    specialize (IH ltac:(discriminate) So).
    pose proof (append_head room ((a2, t2) :: r2) (b, u) ltac:(discriminate)) as H.
    cbn [Sound]; repeat split; auto.
    destruct (append room ((a2, t2) :: r2) (b, u)) as [|[a3 t3] r3]; auto.
    cbn [head_at] in H; lia.
Qed.

Lemma append_length : forall l new, l <> [] -> (length l <= capacity)%nat ->
  (1 <= length (append_to l new) <= capacity)%nat.
Proof.
  intros l [b u] N L; unfold append_to.
  assert (H : forall room m, m <> [] ->
    (1 <= length (append room m (b, u)))%nat /\
    (length (append room m (b, u)) <= length m + if room then 1 else 0)%nat).
  { intros room m; induction m as [|[a t] r IH]; [congruence |]; intros _.
    destruct r as [|y r2].
    - simpl; destruct (u <=? t + a); destruct room; simpl; lia.
    - change (append room ((a, t) :: y :: r2) (b, u))
        with ((a, t) :: append room (y :: r2) (b, u)).
      specialize (IH ltac:(discriminate)); cbn [length] in *; lia. }
  specialize (H (Nat.ltb (length l) capacity) l N).
  destruct (Nat.ltb_spec (length l) capacity); lia.
Qed.

Lemma append_not_empty : forall room l new, append room l new <> [].
Proof.
  intros room [|[a t] [|y r]] [b u]; simpl; try discriminate.
  destruct (u <=? t + a); [| destruct room]; discriminate.
Qed.

(** ** Merging *)

Lemma merge_reached_total : forall r a t, total (merge_reached a t r) = a + total r.
Proof.
  intros r; induction r as [|[a2 t2] r2 IH]; simpl; intros a t; [lia |].
  destruct (t2 <=? t + a); simpl; rewrite ?IH; lia.
Qed.

Lemma merge_reached_supply : forall x r a t, 0 < a -> Sound r ->
  supply x (merge_reached a t r) <= part x t a + supply x r.
Proof.
  intros x r; induction r as [|[a2 t2] r2 IH]; intros a t A So; simpl; [lia |].
  destruct (t2 <=? t + a) eqn:E; simpl; [| lia].
  destruct So as (A2 & T2 & Or & So).
  specialize (IH (a + a2) t ltac:(lia) So); unfold part in *; lia.
Qed.

Lemma merge_reached_sound : forall r a t, 0 < a -> 0 <= t -> Sound r ->
  Sound (merge_reached a t r) /\ head_at (merge_reached a t r) = t
  /\ (length (merge_reached a t r) <= S (length r))%nat /\ merge_reached a t r <> [].
Proof.
  intros r; induction r as [|[a2 t2] r2 IH]; intros a t A T So.
  - simpl; repeat split; auto; discriminate.
  - cbn [merge_reached]; destruct So as (A2 & T2 & Or & So).
    destruct (t2 <=? t + a) eqn:E.
    + destruct (IH (a + a2) t ltac:(lia) T So) as (H1 & H2 & H3 & H4).
      repeat split; auto; cbn [length] in *; lia.
    + cbn [Sound head_at length]; repeat split; auto; try lia; discriminate.
Qed.

Lemma merge_small_total : forall r a t, total (merge_small a t r) = a + total r.
Proof.
  intros r; induction r as [|[a2 t2] r2 IH]; simpl; intros a t; destruct (a <? least); simpl;
    rewrite ?IH; lia.
Qed.

Lemma merge_small_supply : forall x r a t, Sound ((a, t) :: r) ->
  supply x (merge_small a t r) <= part x t a + supply x r.
Proof.
  intros x r; induction r as [|[a2 t2] r2 IH]; intros a t So; simpl; destruct (a <? least);
    simpl; try lia.
  destruct So as (A & T & Or & A2 & T2 & O2 & So).
  assert (So' : Sound ((a2 + a, Z.max 0 (t2 - a)) :: r2)).
  { cbn [Sound]; repeat split; auto; try lia; destruct r2 as [|[]]; auto; lia. }
  specialize (IH _ _ So'); unfold part in *; lia.
Qed.

Lemma merge_small_sound : forall r a t, Sound ((a, t) :: r) ->
  Sound (merge_small a t r) /\ t <= head_at (merge_small a t r)
  /\ (length (merge_small a t r) <= S (length r))%nat /\ merge_small a t r <> [].
Proof.
  intros r; induction r as [|[a2 t2] r2 IH]; intros a t So.
  - cbn [merge_small]; destruct (a <? least); (split; [exact So |]); cbn [head_at length];
      repeat split; try lia; discriminate.
  - cbn [merge_small]; destruct (a <? least).
    + destruct So as (A & T & Or & A2 & T2 & O2 & So).
      assert (So' : Sound ((a2 + a, Z.max 0 (t2 - a)) :: r2)).
      { cbn [Sound]; repeat split; auto; try lia; destruct r2 as [|[]]; auto; lia. }
      destruct (IH _ _ So') as (H1 & H2 & H3 & H4).
      split; [exact H1 |]; repeat split; auto; cbn [length] in *; lia.
    + split; [exact So |]; cbn [head_at length]; repeat split; auto; try lia; discriminate.
Qed.

(** ** Charging *)

(** A state of a ring: between one and [capacity] sound refills. *)
Definition Kept (l : list refill) : Prop :=
  l <> [] /\ Sound l /\ (length l <= capacity)%nat.

Hypothesis period_positive : 0 < period.

Lemma use_head_kept : forall a t r, Kept ((a, t) :: r) -> a <= period ->
  Kept (use_head a t r) /\ total (use_head a t r) = a + total r
  /\ t + a <= head_at (use_head a t r)
  /\ forall x, supply x (use_head a t r) <= part x (t + period) a + supply x r.
Proof.
  intros a t r (N & (A & T & Or & So) & L) AP; unfold use_head.
  destruct r as [|[a2 t2] r2].
  - unfold Kept; cbn [supply total head_at length Sound] in *.
    repeat split; auto; try discriminate; intros; lia.
  - assert (HR : head_at ((a2, t2) :: r2) = t2) by reflexivity.
    assert (NR : (a2, t2) :: r2 <> []) by discriminate.
    cbv iota; remember ((a2, t2) :: r2) as r eqn:Er; clear Er; cbn [length] in L.
    assert (LR : (length r <= capacity)%nat) by lia.
    pose proof (append_length r (a, t + period) NR LR) as HL.
    unfold append_to in *; split; [| repeat split].
    + repeat split; [apply append_not_empty | | lia].
      apply append_sound; auto; cbn [fst snd]; lia.
    + rewrite append_total by auto; cbn [fst]; lia.
    + pose proof (append_head (Nat.ltb (length r) capacity) r (a, t + period) NR) as H; lia.
    + intros x; pose proof (append_supply x (Nat.ltb (length r) capacity) r (a, t + period) NR So
                              ltac:(cbn [fst]; lia)) as H; cbn [fst snd] in H; lia.
Qed.

Lemma total_positive : forall l, Sound l -> 0 <= total l.
Proof.
  induction l as [|[a t] r IH]; simpl; [lia |]; intros (A & _ & _ & So); specialize (IH So); lia.
Qed.

Lemma part_split : forall x t a u, 0 <= u <= a ->
  part x t a = part x t u + part x (t + u) (a - u).
Proof. intros; unfold part; lia. Qed.

Lemma part_shift : forall x t u, part (x - period) t u = part x (t + period) u.
Proof. intros; unfold part; lia. Qed.

(** What one charge does, all at once. *)
Lemma consume_spec : forall fuel left l v l1 v1,
  Kept l -> total l <= period -> 0 <= left <= Z.of_nat fuel ->
  consume fuel left l v = (l1, v1) ->
  Kept l1 /\ total l1 = total l
  /\ (forall x, used_in x period v1 + supply x l1 <= used_in x period v + supply x l)
  /\ (forall x, x <= head_at l -> used_before x v1 = used_before x v)
  /\ (forall x, head_at l1 <= x -> used_before x v1 = used_before x v + left)
  /\ (forall x, 0 <= used_before x v1 - used_before x v <= part x (head_at l) left)
  /\ (forall x, part x (head_at l) (Z.min left (head_amount l))
                <= used_before x v1 - used_before x v)
  /\ head_at l <= head_at l1.
Proof.
  intros fuel; induction fuel as [|k IH]; intros left l v l1 v1 K TP F E.
  - simpl in E; inversion E; subst; assert (left = 0) by lia; subst.
    repeat split; try apply K; intros; unfold part; try lia.
  - destruct l as [|[a t] r]; [destruct K; congruence |].
    cbn [consume] in E.
    assert (So := proj1 (proj2 K)); cbn [Sound] in So; destruct So as (A & T & Or & So).
    assert (TR : 0 <= total r) by (apply total_positive; exact So).
    cbn [total] in TP.
    destruct (a <=? left) eqn:C.
    + destruct (use_head_kept a t r K ltac:(lia)) as (K1 & T1 & H1 & S1).
      destruct (IH (left - a) _ _ _ _ K1 ltac:(lia) ltac:(lia) E)
        as (K2 & T2 & I2 & B2 & A2 & D2 & D3 & H2).
      cbn [head_at head_amount total used_before supply] in *.
      split; [exact K2 |]; split; [lia |]; repeat split.
      * intros x; specialize (I2 x); specialize (S1 x); unfold used_in in *.
        cbn [used_before supply] in *; rewrite part_shift in I2; lia.
      * intros x X; rewrite B2 by lia; unfold part; lia.
      * intros x X; rewrite A2 by lia; unfold part; lia.
      * specialize (D2 x); unfold part in *; lia.
      * specialize (D2 x); unfold part in *; lia.
      * intros x; specialize (D2 x); unfold part in *; lia.
      * lia.
    + destruct (0 <? left) eqn:Z0; inversion E; subst; clear E.
      * set (m := (a - left, t + left) :: r).
        assert (KM : Kept m).
        { destruct K as (N & _ & L); split; [discriminate | split; [| exact L]].
          unfold m; cbn [Sound]; repeat split; auto; try lia.
          destruct r as [|[]]; auto; lia. }
        destruct KM as (NM & SM & LM).
        pose proof (append_length m (left, t + period) NM LM) as HL.
        pose proof (append_total (Nat.ltb (length m) capacity) m (left, t + period) NM) as HT.
        pose proof (append_head (Nat.ltb (length m) capacity) m (left, t + period) NM) as HH.
        unfold append_to in *.
        assert (HM : head_at m = t + left) by reflexivity.
        split; [| split; [| repeat split]].
        -- repeat split; [apply append_not_empty | | lia].
           apply append_sound; auto; simpl; lia.
        -- rewrite HT; unfold m; cbn [total fst]; lia.
        -- intros x; pose proof (append_supply x (Nat.ltb (length m) capacity) m
                                   (left, t + period) NM SM ltac:(simpl; lia)) as HS.
           unfold m in HS at 3; cbn [supply fst snd] in HS.
           unfold used_in; cbn [used_before supply]; rewrite part_shift.
           rewrite (part_split x t a left) by lia; lia.
        -- intros x X; cbn [used_before head_at] in *; unfold part; lia.
        -- intros x X; cbn [used_before]; unfold part; lia.
        -- cbn [used_before head_at]; unfold part; lia.
        -- cbn [used_before head_at]; unfold part; lia.
        -- intros x; cbn [used_before head_at head_amount]; unfold part; lia.
        -- cbn [head_at] in *; lia.
      * assert (left = 0) by lia; subst.
        repeat split; try apply K; intros; cbn [head_at head_amount]; unfold part; try lia.
Qed.

Lemma small_kept : forall l, Kept l ->
  Kept (small l) /\ total (small l) = total l /\ head_at l <= head_at (small l)
  /\ forall x, supply x (small l) <= supply x l.
Proof.
  intros [|[a t] r] (N & So & L); [congruence |]; unfold small.
  destruct (merge_small_sound r a t So) as (H1 & H2 & H3 & H4).
  repeat split; auto; [cbn [length] in *; lia | apply merge_small_total |].
  intros x; cbn [supply]; apply merge_small_supply, So.
Qed.

Lemma reached_kept : forall l, Kept l ->
  Kept (reached l) /\ total (reached l) = total l /\ head_at l <= head_at (reached l)
  /\ forall x, supply x (reached l) <= supply x l.
Proof.
  intros [|[a t] r] (N & So0 & L); [congruence |]; destruct So0 as (A & T & Or & So).
  unfold reached.
  destruct (merge_reached_sound r a t A T So) as (H1 & H2 & H3 & H4).
  repeat split; auto; [cbn [length] in *; lia | apply merge_reached_total | cbn [head_at]; lia |].
  intros x; cbn [supply]; apply merge_reached_supply; auto.
Qed.

Lemma activate_kept : forall now l, Kept l -> head_at l <= now ->
  Kept (activate now l) /\ total (activate now l) = total l /\ head_at (activate now l) = now
  /\ forall x, supply x (activate now l) <= supply x l.
Proof.
  intros now [|[a t] r] (N & So0 & L) R; [congruence |]; destruct So0 as (A & T & Or & So).
  unfold activate.
  cbn [head_at] in R; replace (t <=? now) with true by lia.
  destruct (merge_reached_sound r a now A ltac:(lia) So) as (H1 & H2 & H3 & H4).
  repeat split; auto; [cbn [length] in *; lia | apply merge_reached_total |].
  intros x; pose proof (merge_reached_supply x r a now A So); cbn [supply]; unfold part in *; lia.
Qed.

(** ** Schedules *)

Variables budget gap delay : Z.
Hypothesis budget_positive : 0 < budget.
Hypothesis budget_fits : budget <= period.
Hypothesis gap_positive : 0 < gap.
Hypothesis delay_not_negative : 0 <= delay.
Hypothesis capacity_positive : (1 <= capacity)%nat.

(** A ring, what was really used, when the last use ended, and the times for which the uses were
    charged. *)
Record history := History {
  refills : list refill; real : list (Z * Z); free_from : Z; charged : list (Z * Z) }.

Definition start : history := History [(budget, 0)] [] 0 [].

(** What happens to a context. It is activated at any time. A slice begins when the head is usable,
    at most [delay] after the head's time, and stops at the first safepoint after the head is used
    up: less than [gap] later. A context that is activated when each of its slices begins
    (constant bandwidth) has delay 0; one that is activated when it becomes runnable (sporadic) is
    delayed by whatever else runs on the lane. *)
Inductive happens : history -> history -> Prop :=
| Activates : forall h now,
    happens h (History (activate now (refills h)) (real h) (free_from h) (charged h))
| Runs : forall h begin used,
    head_at (refills h) <= begin <= head_at (refills h) + delay ->
    free_from h <= begin ->
    0 <= used < head_amount (refills h) + gap ->
    happens h (let '(l, v) := charge_noting used (refills h) (charged h) in
               History l ((begin, used) :: real h) (begin + used) v).

Inductive reachable : history -> Prop :=
| AtStart : reachable start
| After : forall h k, reachable h -> happens h k -> reachable k.

Fixpoint sum_used (us : list (Z * Z)) : Z :=
  match us with [] => 0 | (_, u) :: r => u + sum_used r end.

Record Invariant (h : history) : Prop := {
  i_kept : Kept (refills h);
  i_total : total (refills h) = budget;
  (** Charged use and supply fit into the budget. *)
  i_window : forall x, used_in x period (charged h) + supply x (refills h) <= budget;
  (** All that was charged lies before the head. *)
  i_settled : forall x, head_at (refills h) <= x -> used_before x (charged h) = sum_used (real h);
  i_ended : forall x, free_from h <= x -> used_before x (real h) = sum_used (real h);
  i_real : forall x, used_before x (real h) <= sum_used (real h);
  (** Real use is ahead of charged use by less than a gap. *)
  i_early : forall x, used_before x (real h) - used_before x (charged h) < gap;
  (** And behind it by no more than the delay. *)
  i_late : forall x, used_before x (charged h) <= used_before (x + delay) (real h);
  (** One cycle of use per cycle. *)
  i_rate : forall x y, 0 <= y -> used_before (x + y) (real h) <= used_before x (real h) + y }.

Lemma activate_unready : forall now l, Kept l -> now < head_at l -> activate now l = l.
Proof.
  intros now [|[a t] r] K H; auto; unfold activate; cbn [head_at] in H.
  replace (t <=? now) with false by lia; reflexivity.
Qed.

Lemma reachable_invariant : forall h, reachable h -> Invariant h.
Proof.
  intros h R; induction R as [| h k R I Sl].
  - constructor; cbn [start refills real charged free_from total used_before sum_used]; intros;
      try lia.
    + split; [discriminate | split; [cbn [Sound]; repeat split; lia | simpl; lia]].
    + unfold used_in; cbn [supply used_before]; unfold part; lia.
  - destruct Sl as [h now | h begin used Hb Hf U]; destruct I as [K T W St En Re Ea La Ra].
    + destruct (Z.lt_ge_cases now (head_at (refills h))) as [N | N].
      { rewrite activate_unready by auto; constructor; auto. }
      destruct (activate_kept now (refills h) K N) as (K1 & T1 & H1 & S1).
      constructor; cbn [refills real charged free_from]; auto; try lia.
      * intros x; specialize (W x); specialize (S1 x); lia.
      * intros x X; apply St; lia.
    + unfold charge_noting.
      destruct (consume (Z.to_nat used) used (refills h) (charged h)) as [l1 v1] eqn:E.
      destruct (consume_spec (Z.to_nat used) used (refills h) (charged h) l1 v1 K
                  ltac:(lia) ltac:(lia) E) as (K2 & T2 & I2 & B2 & A2 & D2 & D3 & H2).
      destruct (small_kept l1 K2) as (K3 & T3 & H3 & S3).
      destruct (reached_kept (small l1) K3) as (K4 & T4 & H4 & S4).
      constructor; cbn [refills real charged free_from used_before sum_used]; auto; try lia.
      * intros x; specialize (I2 x); specialize (W x); specialize (S3 x); specialize (S4 x); lia.
      * intros x X; rewrite (A2 x ltac:(lia)), (St x ltac:(lia)); lia.
      * intros x X; rewrite (En x ltac:(lia)); unfold part; lia.
      * intros x; specialize (Re x); unfold part; lia.
      * intros x; specialize (Ea x); specialize (D2 x); specialize (D3 x).
        destruct (Z.le_gt_cases x begin) as [X | X].
        -- assert (part x begin used = 0) by (unfold part; lia); lia.
        -- rewrite (St x ltac:(lia)) in *; specialize (Re x); unfold part in *; lia.
      * intros x; specialize (La x); specialize (D2 x); unfold part in *; lia.
      * intros x y Y.
        destruct (Z.le_gt_cases (x + y) begin) as [X | X].
        -- specialize (Ra x y Y); unfold part in *; lia.
        -- rewrite (En (x + y) ltac:(lia)).
           destruct (Z.le_gt_cases begin x) as [X2 | X2].
           ++ rewrite (En x ltac:(lia)); unfold part; lia.
           ++ specialize (Ra x (begin - x) ltac:(lia)).
              replace (x + (begin - x)) with begin in Ra by lia.
              rewrite (En begin ltac:(lia)) in Ra; unfold part; lia.
Qed.

(** The refills sum to the budget, always. *)
Theorem run_total : forall h, reachable h -> total (refills h) = budget.
Proof. intros h R; apply (i_total h (reachable_invariant h R)). Qed.

(** They are ordered, apart and positive; between one and [capacity] of them. *)
Theorem run_sound : forall h, reachable h ->
  Sound (refills h) /\ (1 <= length (refills h) <= capacity)%nat.
Proof.
  intros h R; destruct (i_kept h (reachable_invariant h R)) as (N & So & L); split; auto.
  destruct (refills h); [congruence | simpl in *; lia].
Qed.

(** The use in any window of one period is less than the budget, one gap and the delay. *)
Theorem window : forall h x, reachable h -> used_in x period (real h) < budget + gap + delay.
Proof.
  intros h x R; destruct (reachable_invariant h R) as [K T W St En Re Ea La Ra].
  pose proof (W x) as H; pose proof (Ea x) as H1; pose proof (La (x - period)) as H2.
  pose proof (Ra (x - period) delay delay_not_negative) as H3.
  assert (0 <= supply x (refills h)).
  { clear; induction (refills h) as [|[a t] r IH]; simpl; unfold part; lia. }
  unfold used_in in *; lia.
Qed.

End Ring.

(** Constant bandwidth: the delay is 0, and the window holds less than budget + G. *)
Corollary window_constant_bandwidth : forall period least capacity budget gap h x,
  0 < period -> 0 < budget -> budget <= period -> 0 < gap -> (1 <= capacity)%nat ->
  reachable period least capacity budget gap 0 h ->
  used_in x period (real h) < budget + gap.
Proof.
  intros period least capacity budget gap h x P B F G C R.
  pose proof (window period least capacity P budget gap 0 B F G (Z.le_refl 0) C h x R); lia.
Qed.

(** * Revocation

    Contexts are named by slot and generation. A reference is used by the operations below and by
    nothing else; each of them resolves it first. [Run] is the dispatcher: it runs a holder on a
    context. Phases, queues and loans are not modelled: they decide when a live context runs. *)

Record entry := Entry { e_generation : Z; e_live : bool; e_holder : option Z }.

Definition table := Z -> entry.

Inductive context_request :=
| Create (slot : Z)
| Bind (r : Z * Z) (holder : Z)
| Unbind (r : Z * Z)
| Lend (r : Z * Z) (borrower : Z)
| Revoke (r : Z * Z)
| Run (slot : Z).

Definition set_entry (t : table) (s : Z) (e : entry) : table :=
  fun k => if k =? s then e else t k.

Definition is_live (t : table) (r : Z * Z) : bool :=
  e_live (t (fst r)) && (e_generation (t (fst r)) =? snd r).

(** The next table, and the reference of the context that ran, if one did. *)
Definition context_step (t : table) (q : context_request) : table * option (Z * Z) :=
  match q with
  | Create s =>
      if e_live (t s) then (t, None)
      else (set_entry t s (Entry (e_generation (t s)) true None), None)
  | Bind r c | Lend r c =>
      if is_live t r then (set_entry t (fst r) (Entry (snd r) true (Some c)), None) else (t, None)
  | Unbind r =>
      if is_live t r then (set_entry t (fst r) (Entry (snd r) true None), None) else (t, None)
  | Revoke r =>
      if is_live t r then (set_entry t (fst r) (Entry (snd r + 1) false None), None) else (t, None)
  | Run s =>
      match t s with
      | Entry g true (Some _) => (t, Some (s, g))
      | _ => (t, None)
      end
  end.

Fixpoint context_run (t : table) (qs : list context_request) : list (option (Z * Z)) :=
  match qs with
  | [] => []
  | q :: r => let '(t1, ran) := context_step t q in ran :: context_run t1 r
  end.

Lemma generation_grows : forall t q s,
  e_generation (t s) <= e_generation (fst (context_step t q) s).
Proof.
  intros t q s; destruct q as [k | r c | r | r c | r | k]; simpl.
  - destruct (e_live (t k)); simpl; [lia |]; unfold set_entry; destruct (Z.eqb_spec s k); subst;
      simpl; lia.
  - destruct (is_live t r) eqn:L; simpl; [| lia]; unfold set_entry, is_live in *.
    destruct (Z.eqb_spec s (fst r)); subst; simpl; lia.
  - destruct (is_live t r) eqn:L; simpl; [| lia]; unfold set_entry, is_live in *.
    destruct (Z.eqb_spec s (fst r)); subst; simpl; lia.
  - destruct (is_live t r) eqn:L; simpl; [| lia]; unfold set_entry, is_live in *.
    destruct (Z.eqb_spec s (fst r)); subst; simpl; lia.
  - destruct (is_live t r) eqn:L; simpl; [| lia]; unfold set_entry, is_live in *.
    destruct (Z.eqb_spec s (fst r)); subst; simpl; lia.
  - destruct (t k) as [g [] []]; simpl; lia.
Qed.

Lemma outdated_never_runs : forall qs t r,
  snd r < e_generation (t (fst r)) -> ~ In (Some r) (context_run t qs).
Proof.
  intros qs; induction qs as [|q qs IH]; simpl; auto; intros t r O.
  pose proof (generation_grows t q (fst r)) as G.
  destruct (context_step t q) as [t1 ran] eqn:E; simpl in G |- *.
  intros [H | H]; [| revert H; apply IH; lia].
  subst ran; destruct q as [k | r0 c | r0 | r0 c | r0 | k]; simpl in E;
    repeat match type of E with context [if ?x then _ else _] => destruct x end;
    try discriminate.
  destruct (t k) as [g [] [h |]] eqn:K; inversion E; subst; simpl in *; rewrite K in O.
  simpl in O; lia.
Qed.

(** After a context was revoked, no sequence of operations makes it run. *)
Theorem revoked_never_runs : forall t r qs, is_live t r = true ->
  ~ In (Some r) (context_run (fst (context_step t (Revoke r))) qs).
Proof.
  intros t r qs L; apply outdated_never_runs; simpl; rewrite L; simpl.
  unfold set_entry; rewrite Z.eqb_refl; simpl; lia.
Qed.
