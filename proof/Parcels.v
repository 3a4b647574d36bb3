(* Effects at a wave's end do not depend on which worker finished first.

   Workers hand in what their lanes posted, in whatever order they finish. Sorted by
   (sending lane, lane-local step, sequence) it is always the same list: the outboxes in
   lane order, which is what the canonical run applies (rule 15). *)

From Coq Require Import List Arith NArith Lia Bool Permutation Sorting.
From Wavelock Require Import Interleave Machine Invariants.
Import ListNotations.

Definition key := (nat * N * N)%type.
Definition parcel := (key * effect)%type.

Definition key_lt (a b : key) : Prop :=
  let '(la, sa, qa) := a in let '(lb, sb, qb) := b in
  la < lb \/ (la = lb /\ ((sa < sb)%N \/ (sa = sb /\ (qa < qb)%N))).

Definition key_ltb (a b : key) : bool :=
  let '(la, sa, qa) := a in let '(lb, sb, qb) := b in
  (la <? lb) || ((la =? lb) && ((sa <? sb)%N || ((sa =? sb)%N && (qa <? qb)%N))).

Lemma key_ltb_spec a b : key_ltb a b = true <-> key_lt a b.
Proof.
  destruct a as [[la sa] qa], b as [[lb sb] qb]. unfold key_ltb, key_lt.
  rewrite !orb_true_iff, !andb_true_iff, !orb_true_iff, !andb_true_iff,
    Nat.ltb_lt, Nat.eqb_eq, !N.ltb_lt, N.eqb_eq. tauto.
Qed.

Lemma key_lt_trans a b c : key_lt a b -> key_lt b c -> key_lt a c.
Proof.
  destruct a as [[la sa] qa], b as [[lb sb] qb], c as [[lc sc] qc]. unfold key_lt. lia.
Qed.

(* Not after: [b] is not before [a]. *)
Definition before (a b : parcel) : Prop := ~ key_lt (fst b) (fst a).

Lemma before_trans a b c : before a b -> before b c -> before a c.
Proof.
  destruct a as [[[la sa] qa] ea], b as [[[lb sb] qb] eb], c as [[[lc sc] qc] ec].
  unfold before, key_lt; cbn. lia.
Qed.

Fixpoint insert (x : parcel) (l : list parcel) : list parcel :=
  match l with
  | [] => [x]
  | y :: r => if key_ltb (fst y) (fst x) then y :: insert x r else x :: y :: r
  end.

Fixpoint sort (l : list parcel) : list parcel :=
  match l with [] => [] | x :: r => insert x (sort r) end.

Lemma insert_perm x l : Permutation (insert x l) (x :: l).
Proof.
  induction l as [|y l IH]; cbn; auto. destruct (key_ltb (fst y) (fst x)); auto.
  rewrite IH. apply perm_swap.
Qed.

Lemma sort_perm l : Permutation (sort l) l.
Proof. induction l as [|x l IH]; cbn; auto. rewrite insert_perm. auto. Qed.

Lemma insert_sorted x l : StronglySorted before l -> StronglySorted before (insert x l).
Proof.
  induction l as [|y l IH]; intros H; cbn.
  - constructor; constructor.
  - inversion H; subst. destruct (key_ltb (fst y) (fst x)) eqn:E.
    + constructor; auto. apply Forall_forall. intros z Hz.
      apply (Permutation_in _ (insert_perm x l)) in Hz. destruct Hz as [<-|Hz].
      * apply key_ltb_spec in E. unfold before. intros Hn.
        assert (X := key_lt_trans _ _ _ E Hn).
        destruct y as [[[ly sy] qy] ey]. unfold key_lt in X; cbn in X. lia.
      * rewrite Forall_forall in H3. auto.
    + assert (Hxy : before x y).
      { unfold before. intros Hn. apply key_ltb_spec in Hn. congruence. }
      constructor; auto. constructor; auto.
      rewrite Forall_forall in H3 |- *. intros z Hz. eapply before_trans; eauto.
Qed.

Lemma sort_sorted l : StronglySorted before (sort l).
Proof. induction l; cbn; auto using insert_sorted. constructor. Qed.

Definition strictly (a b : parcel) : Prop := key_lt (fst a) (fst b).

Lemma sorted_unique l : forall m,
  StronglySorted strictly l -> StronglySorted before m -> Permutation m l -> m = l.
Proof.
  induction l as [|a l IH]; intros m Hl Hm Hp.
  - apply Permutation_nil. apply Permutation_sym. auto.
  - destruct m as [|b m]; [apply Permutation_nil in Hp; discriminate|].
    inversion Hl; subst. inversion Hm; subst.
    assert (Hab : b = a).
    { assert (Hb : In b (a :: l)) by (eapply Permutation_in; eauto; left; auto).
      assert (Ha : In a (b :: m)).
      { eapply Permutation_in; [apply Permutation_sym; eauto|left; auto]. }
      destruct Hb as [->|Hb]; auto. destruct Ha as [->|Ha]; auto.
      rewrite Forall_forall in H2, H4. apply H2 in Hb. apply H4 in Ha.
      unfold before, strictly in *. contradiction. }
    subst b. f_equal. apply IH; auto. eapply Permutation_cons_inv; eauto.
Qed.

(* What lane [i] posted, with its key. *)
Definition keyed (i : nat) (l : lane) : list parcel :=
  map (fun p => ((i, p_step p, p_seq p), p_effect p)) (outbox l).

Fixpoint keyed_from (i : nat) (ls : list lane) : list parcel :=
  match ls with [] => [] | l :: r => keyed i l ++ keyed_from (S i) r end.

Definition strip (p : parcel) : nat * effect := (fst (fst (fst p)), snd p).

Lemma strip_keyed ls : forall i, map strip (keyed_from i ls) = effects_from i ls.
Proof.
  induction ls as [|l ls IH]; intros i; cbn; auto.
  rewrite map_app, IH. f_equal. unfold keyed, lane_effects. rewrite map_map. auto.
Qed.

Lemma nth_sorted (R : parcel -> parcel -> Prop) l :
  (forall i j a b, i < j -> nth_error l i = Some a -> nth_error l j = Some b -> R a b) ->
  StronglySorted R l.
Proof.
  induction l as [|x l IH]; intros H; constructor.
  - apply IH. intros i j a b Hij Ha Hb. apply (H (S i) (S j) a b); auto. lia.
  - apply Forall_forall. intros y Hy. apply In_nth_error in Hy. destruct Hy as [j Hj].
    apply (H 0 (S j) x y); auto. lia.
Qed.

Lemma keyed_sorted i l : out_ok l -> StronglySorted strictly (keyed i l).
Proof.
  intros [O1 O2]. apply nth_sorted. intros a b x y Hab Hx Hy.
  unfold keyed in Hx, Hy. rewrite nth_error_map in Hx, Hy.
  destruct (nth_error (outbox l) a) as [p|] eqn:Ep; [|discriminate].
  destruct (nth_error (outbox l) b) as [q|] eqn:Eq; [|discriminate].
  cbn in Hx, Hy. injection Hx as <-. injection Hy as <-. unfold strictly, key_lt; cbn.
  specialize (O2 a b p q Hab Ep Eq). apply O1 in Ep, Eq. lia.
Qed.

Lemma sorted_app (R : parcel -> parcel -> Prop) l m :
  StronglySorted R l -> StronglySorted R m ->
  (forall a b, In a l -> In b m -> R a b) -> StronglySorted R (l ++ m).
Proof.
  intros Hl Hm H. induction Hl as [|a l Hl IH Hf]; cbn; auto.
  constructor.
  - apply IH. intros x y Hx. apply H. right; auto.
  - apply Forall_app. split; auto. apply Forall_forall. intros y Hy. apply H; auto. left; auto.
Qed.

Lemma keyed_from_lanes ls : forall i p, In p (keyed_from i ls) -> i <= fst (fst (fst p)).
Proof.
  induction ls as [|l ls IH]; intros i p H; cbn in H; [destruct H|].
  apply in_app_or in H. destruct H as [H|H].
  - unfold keyed in H. apply in_map_iff in H. destruct H as (q & <- & _). cbn. lia.
  - apply IH in H. lia.
Qed.

Lemma keyed_from_sorted ls : Forall out_ok ls -> forall i, StronglySorted strictly (keyed_from i
    ls).
Proof.
  induction 1 as [|l ls Hl Hls IH]; intros i; cbn; [constructor|].
  apply sorted_app; auto using keyed_sorted.
  intros a b Ha Hb. apply keyed_from_lanes in Hb. unfold keyed in Ha. apply in_map_iff in Ha.
  destruct Ha as (p & <- & _). destruct b as [[[lb sb] qb] eb]. unfold strictly, key_lt; cbn in *.
  lia.
Qed.

Section Parcels.

Variables mem co : Type.
Variable slice : mem -> co -> option answer -> N -> slice_result mem co.
Variable choose : list cid -> nat.
Variable cfg : settings.

(* In whatever order the posts of the lanes arrive, sorting them gives the canonical
   order of the effects. *)
Theorem arrival_order_does_not_matter (st : state mem co) arrived :
  Forall out_ok (lanes _ _ st) ->
  Permutation arrived (keyed_from 0 (lanes _ _ st)) ->
  map strip (sort arrived) = effects_from 0 (lanes _ _ st).
Proof.
  intros Ho Hp. rewrite <- strip_keyed. f_equal. apply sorted_unique.
  - apply keyed_from_sorted. auto.
  - apply sort_sorted.
  - rewrite sort_perm. auto.
Qed.

(* So the state after the wave's end is the same. *)
Theorem finishing_order_does_not_matter (st0 st : state mem co) arrived :
  inv _ _ st0 -> reachable _ _ slice choose cfg st0 st ->
  Permutation arrived (keyed_from 0 (lanes _ _ st)) ->
  close_with _ _ cfg (map strip (sort arrived)) st = close_wave _ _ cfg st.
Proof.
  intros H0 H Hp. unfold close_wave. f_equal. apply arrival_order_does_not_matter; auto.
  apply (reachable_inv _ _ _ _ _ st0) in H; auto. apply H.
Qed.

End Parcels.
