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

Variables budget gap : Z.
Hypothesis budget_positive : 0 < budget.
Hypothesis budget_fits : budget <= period.
Hypothesis gap_positive : 0 < gap.
Hypothesis capacity_positive : (1 <= capacity)%nat.

(** A ring, what was really used, and the times for which it was charged. *)
Record history := History { refills : list refill; real : list (Z * Z); charged : list (Z * Z) }.

Definition start : history := History [(budget, 0)] [] [].

(** One slice of the context from [now] on. It may begin when the head is usable, and stops at the
    first safepoint after the head is used up: less than [gap] later. *)
Inductive slice : history -> history -> Prop :=
| Slice : forall h now used,
    head_at (refills h) <= now ->
    0 <= used < head_amount (activate now (refills h)) + gap ->
    slice h (let '(l, v) := charge_noting used (activate now (refills h)) (charged h) in
             History l ((now, used) :: real h) v).

Inductive reachable : history -> Prop :=
| AtStart : reachable start
| After : forall h k, reachable h -> slice h k -> reachable k.

Record Invariant (h : history) : Prop := {
  i_kept : Kept (refills h);
  i_total : total (refills h) = budget;
  i_window : forall x, used_in x period (charged h) + supply x (refills h) <= budget;
  i_ahead : forall x, 0 <= used_before x (real h) - used_before x (charged h) < gap;
  i_settled : forall x, head_at (refills h) <= x ->
    used_before x (real h) = used_before x (charged h) }.

Lemma reachable_invariant : forall h, reachable h -> Invariant h.
Proof.
  intros h R; induction R as [| h k R I Sl].
  - constructor; simpl.
    + repeat split; simpl; auto; try discriminate; lia.
    + lia.
    + intros x; unfold used_in, part; simpl; lia.
    + intros; simpl; lia.
    + auto.
  - destruct Sl as [h now used Rd U]; destruct I as [K T W Ah St].
    destruct (activate_kept now (refills h) K Rd) as (K1 & T1 & H1 & S1).
    set (l0 := activate now (refills h)) in *.
    unfold charge_noting.
    destruct (consume (Z.to_nat used) used l0 (charged h)) as [l1 v1] eqn:E.
    destruct (consume_spec (Z.to_nat used) used l0 (charged h) l1 v1 K1 ltac:(lia) ltac:(lia) E)
      as (K2 & T2 & I2 & B2 & A2 & D2 & D3 & H2).
    destruct (small_kept l1 K2) as (K3 & T3 & H3 & S3).
    destruct (reached_kept (small l1) K3) as (K4 & T4 & H4 & S4).
    constructor; cbn [refills real charged].
    + exact K4.
    + lia.
    + intros x; specialize (I2 x); specialize (W x); specialize (S1 x); specialize (S3 x);
        specialize (S4 x); lia.
    + intros x; cbn [used_before]; specialize (Ah x); specialize (D2 x); specialize (D3 x).
      rewrite H1 in *.
      destruct (Z.le_gt_cases x now) as [X | X].
      * assert (part x now used = 0) by (unfold part; lia).
        rewrite (B2 x X); lia.
      * rewrite (St x ltac:(lia)) in *; unfold part in *; lia.
    + intros x X; cbn [used_before]; rewrite (A2 x ltac:(lia)), (St x ltac:(lia)).
      assert (P : part x now used = used \/ x < now + used) by (unfold part; lia).
      destruct P as [-> | P]; [lia |].
      exfalso.
      (* All that was charged lies before the new head, so the head is not before its end. *)
      pose proof (D2 x) as Q; rewrite (A2 x ltac:(lia)), H1 in Q; unfold part in Q; lia.
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

(** The use in any window of one period is less than the budget and one gap. *)
Theorem window : forall h x, reachable h -> used_in x period (real h) < budget + gap.
Proof.
  intros h x R; destruct (reachable_invariant h R) as [K T W Ah St].
  pose proof (W x) as H; pose proof (Ah x) as H1; pose proof (Ah (x - period)) as H2.
  assert (0 <= supply x (refills h)).
  { clear; induction (refills h) as [|[a t] r IH]; simpl; unfold part; lia. }
  unfold used_in in *; lia.
Qed.

End Ring.
