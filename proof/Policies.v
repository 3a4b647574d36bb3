(** The bounds of docs/scheduler.md as theorems about the pick function [choose] of [Lane].

    A coroutine, the victim, waits on a lane while others are picked. Each pick is [choose] on a
    queue that holds the victim and any of the other live coroutines; between picks the others do
    anything: they end, wait, are held and released, arrive, in any number. What they cannot do is
    arrive before the victim: who is picked, or waits, joins the tail again. The theorems bound the
    picks before the victim's own.

    Main theorems:
    - [round_robin_bound]: at most as many picks as there are older coroutines: n - 1;
    - [aging_bound]: at most 16 * 256 + (n - 1), whatever the priorities;
    - [progress_other_bound]: one without tokens waits for at most 9 picks per older one without,
      and 8 more;
    - [progress_holder_bound]: one with tokens waits for at most 9/8 of the older holders, and 1;
    - [fixed_no_bound]: fixed priorities give no bound (a counterexample of every length).

    Not covered: handoff, which may pick another than [choose] does; the preemption test at a
    boundary, after which the current coroutine keeps its arrival; [TokenWeighted]; [Fair]. Time
    follows from picks: a pick runs at most a quantum and a gap, and costs its overhead. *)

From Coq Require Import ZArith List Bool Lia.
From Wavelock Require Fair.
From Wavelock Require Import Lane.
Import ListNotations.
Open Scope Z_scope.

(** * [best] picks the first by rank, then by arrival *)

Lemma before_refl : forall p n c, before p n c c = true.
Proof. intros; unfold before; lia. Qed.

Lemma before_trans : forall p n a b c,
  before p n a b = true -> before p n b c = true -> before p n a c = true.
Proof. intros p n a b c; unfold before; lia. Qed.

Lemma before_total : forall p n a b, before p n a b = false -> before p n b a = true.
Proof. intros p n a b; unfold before; lia. Qed.

Theorem best_spec : forall p n l e, best p n l = Some e ->
  In e l /\ forall c, In c l -> before p n (snd e) (snd c) = true.
Proof.
  intros p n l; induction l as [|x r IH]; simpl; [discriminate |]; intros e H.
  destruct (best p n r) as [f |] eqn:B.
  - destruct (IH f eq_refl) as [I A].
    destruct (before p n (snd x) (snd f)) eqn:C; inversion H; subst; clear H.
    + split; auto; intros c [E | J]; subst; auto using before_refl.
      eapply before_trans; eauto.
    + split; auto; intros c [E | J]; subst; auto using before_total.
  - inversion H; subst; destruct r as [|y r2].
    + split; auto; intros c [E | []]; subst; apply before_refl.
    + simpl in B; destruct (best p n r2); [destruct (before p n (snd y) (snd c)) |]; discriminate.
Qed.

Lemma best_some : forall p n l e, In e l -> exists f, best p n l = Some f.
Proof.
  intros p n l; induction l as [|x r IH]; simpl; [tauto |]; intros e [E | I].
  - destruct (best p n r) as [f |]; eauto; destruct (before p n (snd x) (snd f)); eauto.
  - destruct (IH e I) as [f ->]; destruct (before p n (snd x) (snd f)); eauto.
Qed.

(** [choose] picks a member of the queue. *)
Theorem choose_member : forall p n s l e, choose p n s l = Some e -> In e l.
Proof.
  intros p n s l e; destruct p; simpl; try (intros H; apply best_spec in H; tauto).
  unfold or_else; destruct (8 <=? s);
    destruct (best (ProgressAware quantum) n (filter holds_token l)) as [h |] eqn:H;
    destruct (best (ProgressAware quantum) n (filter (fun e => negb (holds_token e)) l))
      as [o |] eqn:Ot;
    intros E; inversion E; subst;
    repeat match goal with
    | B : best _ _ (filter _ l) = Some e |- _ =>
        apply best_spec in B as [B _]; apply filter_In in B; tauto
    end.
Qed.

(** * Waiting *)

Section Waiting.

Variable p : policy.
Variable victim : candidate.

Definition next_streak (streak : Z) (e : candidate) : Z := if holds_token e then streak + 1 else 0.

(** [c] joined the tail after [n] picks, behind the victim. *)
Definition Newcomer (n : Z) (c : candidate) : Prop :=
  arrival (snd victim) < arrival (snd c) /\ n <= picks_before (snd c)
  /\ 0 <= priority (snd c) <= 255.

(** [Waits n s live es]: after [n] picks, with [s] holder picks in a row and [live] other coroutines
    on the lane, [es] are picked and the victim is not. *)
Inductive Waits : Z -> Z -> list candidate -> list candidate -> Prop :=
| WaitsNot : forall n s live, Waits n s live []
| WaitsFor : forall n s live queue e live' es,
    In victim queue ->
    (forall c, In c queue -> c = victim \/ In c live) ->
    choose p n s queue = Some e -> e <> victim ->
    NoDup (map fst live') ->
    (forall c, In c live' -> (In c live /\ fst c <> fst e) \/ Newcomer (n + 1) c) ->
    Waits (n + 1) (next_streak s e) live' es ->
    Waits n s live (e :: es).

(** Coroutines of a kind that none can join any more become fewer with each pick of one of them. *)
Variable old : candidate -> bool.

Definition olds (live : list candidate) : Z := count (filter old live).

Lemma nodup_of_map : forall (l : list candidate), NoDup (map fst l) -> NoDup l.
Proof. apply NoDup_map_inv. Qed.

Lemma olds_kept : forall (live live' : list candidate) (e : candidate),
  NoDup (map fst live') ->
  (forall c, In c live' -> old c = true -> In c live /\ fst c <> fst e) ->
  olds live' <= olds live.
Proof.
  intros live live' e N H; unfold olds, count; apply inj_le, NoDup_incl_length.
  - apply NoDup_filter, nodup_of_map, N.
  - intros c I; apply filter_In in I as [I O]; apply filter_In; split; auto.
    apply (H c I O).
Qed.

Lemma olds_fewer : forall (live live' : list candidate) (e : candidate),
  NoDup (map fst live') ->
  (forall c, In c live' -> old c = true -> In c live /\ fst c <> fst e) ->
  In e live -> old e = true -> olds live' < olds live.
Proof.
  intros live live' e N H I O; unfold olds, count.
  assert (L : (length (e :: filter old live') <= length (filter old live))%nat).
  { apply NoDup_incl_length.
    - constructor; [| apply NoDup_filter, nodup_of_map, N].
      intros J; apply filter_In in J as [J _]; destruct (H e J O); congruence.
    - intros c [E | J]; [subst; apply filter_In; auto |].
      apply filter_In in J as [J P]; apply filter_In; split; auto; apply (H c J P). }
  simpl in L; lia.
Qed.

Lemma olds_most : forall live, olds live <= count live.
Proof.
  intros live; unfold olds, count; induction live as [|x r IH]; simpl; [lia |].
  destruct (old x); simpl; lia.
Qed.

Lemma olds_least : forall live, 0 <= olds live.
Proof. intros; unfold olds, count; lia. Qed.

End Waiting.

(** * Round robin, and cooperative *)

Definition older (v c : candidate) : bool := arrival (snd c) <=? arrival (snd v).

Theorem round_robin_picks : forall q v n s live es,
  Waits (RoundRobin q) v n s live es -> count es <= olds (older v) live.
Proof.
  intros q v n s live es W; induction W as [| n s live queue e live' es I Q C D N L W IH].
  - apply olds_least.
  - simpl in C; apply best_spec in C as [M A]; specialize (A v I).
    unfold before in A; simpl in A.
    assert (E : In e live) by (destruct (Q e M); tauto).
    assert (F : olds (older v) live' < olds (older v) live).
    { apply (olds_fewer _ live live' e N); auto.
      intros c J O; destruct (L c J) as [K | (K & _)]; auto; unfold older in O; lia. }
    unfold count in *; cbn [length]; lia.
Qed.

(** With [n] coroutines on the lane a coroutine waits for at most [n - 1] picks. *)
Theorem round_robin_bound : forall q v n s live es,
  Waits (RoundRobin q) v n s live es -> count es <= count live.
Proof.
  intros q v n s live es W; apply round_robin_picks in W.
  pose proof (olds_most (older v) live); lia.
Qed.

(** * Aging *)

Definition joined_before (m : Z) (c : candidate) : bool := picks_before (snd c) <? m.

(** The moment after which no newcomer passes the victim. *)
Definition safe_from (v : candidate) : Z := picks_before (snd v) + 16 * 256.

Lemma aging_passed_by_old : forall q v n e,
  0 <= priority (snd v) -> 0 <= priority (snd e) <= 255 ->
  before (Aging q) n (snd e) (snd v) = true -> joined_before (safe_from v) e = true.
Proof.
  intros q v n e V E B; unfold before, rank, joined_before, safe_from in *.
  destruct (Z.lt_ge_cases (picks_before (snd e)) (picks_before (snd v) + 16 * 256)) as [H | H];
    [lia | exfalso].
  assert (D : (n - picks_before (snd e)) / 16 + 256 <= (n - picks_before (snd v)) / 16).
  { rewrite <- Z.div_add by lia; apply Z.div_le_mono; lia. }
  lia.
Qed.

Definition valid (c : candidate) : Prop := 0 <= priority (snd c) <= 255.

Theorem aging_after : forall q v n s live es,
  Waits (Aging q) v n s live es -> 0 <= priority (snd v) -> Forall valid live ->
  safe_from v <= n -> count es <= olds (joined_before (safe_from v)) live.
Proof.
  intros q v n s live es W V; induction W as [| n s live queue e live' es I Q C D N L W IH];
    intros F G; [apply olds_least |].
  simpl in C; apply best_spec in C as [M A]; specialize (A v I).
  assert (E : In e live) by (destruct (Q e M); tauto).
  assert (O : joined_before (safe_from v) e = true).
  { eapply aging_passed_by_old; eauto; eapply Forall_forall in F; eauto. }
  assert (Fw : olds (joined_before (safe_from v)) live' < olds (joined_before (safe_from v)) live).
  { apply (olds_fewer _ live live' e N); auto.
    intros c J P; destruct (L c J) as [K | (_ & K & _)]; auto; unfold joined_before in P; lia. }
  assert (F' : Forall valid live').
  { apply Forall_forall; intros c J; destruct (L c J) as [[K _] | (_ & _ & K)]; auto.
    eapply Forall_forall in F; eauto. }
  specialize (IH F' ltac:(lia)); unfold count in *; cbn [length]; lia.
Qed.

(** Sizes of the lane along a wait: never more than [most] others. *)
Inductive Small (p : policy) (v : candidate) (most : Z)
  : Z -> Z -> list candidate -> list candidate -> Prop :=
| SmallNot : forall n s live, count live <= most -> Small p v most n s live []
| SmallFor : forall n s live queue e live' es,
    count live <= most ->
    In v queue ->
    (forall c, In c queue -> c = v \/ In c live) ->
    choose p n s queue = Some e -> e <> v ->
    NoDup (map fst live') ->
    (forall c, In c live' -> (In c live /\ fst c <> fst e) \/ Newcomer v (n + 1) c) ->
    Small p v most (n + 1) (next_streak s e) live' es ->
    Small p v most n s live (e :: es).

Lemma small_waits : forall p v most n s live es,
  Small p v most n s live es -> Waits p v n s live es /\ count live <= most.
Proof.
  intros p v most n s live es H; induction H; split; auto; [constructor |].
  econstructor; eauto; apply IHSmall.
Qed.

(** With at most [most] other coroutines on the lane at any time, whatever their priorities, a
    coroutine waits for at most 16 * 256 picks and one for each other. *)
Theorem aging_bound : forall q v most n s live es,
  Small (Aging q) v most n s live es -> 0 <= priority (snd v) -> Forall valid live ->
  picks_before (snd v) <= n -> count es <= 16 * 256 + most.
Proof.
  intros q v most n s live es W V F B.
  assert (H : count es <= Z.max 0 (safe_from v - n) + most); [| unfold safe_from in H; lia].
  revert F B; induction W as [n s live S | n s live queue e live' es S I Q C D N L W IH];
    intros F B.
  - assert (0 <= count live) by (unfold count; lia); unfold count in *; cbn [length]; lia.
  - destruct (Z.lt_ge_cases n (safe_from v)) as [H | H].
    + assert (F' : Forall valid live').
      { apply Forall_forall; intros c J; destruct (L c J) as [[K _] | (_ & _ & K)]; auto.
        eapply Forall_forall in F; eauto. }
      specialize (IH F' ltac:(lia)); unfold count in *; cbn [length]; lia.
    + assert (R : Small (Aging q) v most n s live (e :: es)) by (econstructor; eauto).
      apply small_waits in R as [R _].
      pose proof (aging_after q v n s live (e :: es) R V F H) as T.
      pose proof (olds_most (joined_before (safe_from v)) live); lia.
Qed.

(** * Progress-aware *)

Definition older_other (v c : candidate) : bool := older v c && negb (holds_token c).
Definition older_holder (v c : candidate) : bool := older v c && holds_token c.

Lemma chosen_holder : forall q n s l e v,
  choose (ProgressAware q) n s l = Some e -> In v l -> holds_token v = true ->
  (holds_token e = true /\ before (ProgressAware q) n (snd e) (snd v) = true)
  \/ (holds_token e = false /\ 8 <= s).
Proof.
  intros q n s l e v C I T; simpl in C; unfold or_else in C.
  destruct (best_some (ProgressAware q) n (filter holds_token l) v) as [h H].
  { apply filter_In; auto. }
  rewrite H in C; apply best_spec in H as [HI HA].
  apply filter_In in HI as [HI HT].
  assert (HB : before (ProgressAware q) n (snd h) (snd v) = true)
    by (apply HA, filter_In; auto).
  destruct (8 <=? s) eqn:S.
  - destruct (best (ProgressAware q) n (filter (fun e => negb (holds_token e)) l))
      as [o |] eqn:O;
      inversion C; subst; [right | left; auto].
    apply best_spec in O as [O _]; apply filter_In in O as [_ O].
    split; [destruct (holds_token e); auto; discriminate | lia].
  - inversion C; subst; left; auto.
Qed.

Lemma chosen_other : forall q n s l e v,
  choose (ProgressAware q) n s l = Some e -> In v l -> holds_token v = false ->
  (holds_token e = false /\ before (ProgressAware q) n (snd e) (snd v) = true)
  \/ (holds_token e = true /\ s < 8).
Proof.
  intros q n s l e v C I T; simpl in C; unfold or_else in C.
  destruct (best_some (ProgressAware q) n (filter (fun e => negb (holds_token e)) l) v) as [o O].
  { apply filter_In; rewrite T; auto. }
  rewrite O in C; apply best_spec in O as [OI OA].
  apply filter_In in OI as [OI OT].
  assert (OB : before (ProgressAware q) n (snd o) (snd v) = true)
    by (apply OA, filter_In; rewrite T; auto).
  assert (OF : holds_token o = false) by (destruct (holds_token o); auto; discriminate).
  destruct (8 <=? s) eqn:S.
  - inversion C; subst; left; auto.
  - destruct (best (ProgressAware q) n (filter holds_token l)) as [h |] eqn:H; inversion C; subst;
      [right | left; auto].
    apply best_spec in H as [H _]; apply filter_In in H as [_ H]; split; auto; lia.
Qed.

(** One without tokens: at most 9 picks per older one without tokens, and 8 more. *)
Theorem progress_other_bound : forall q v n s live es,
  Waits (ProgressAware q) v n s live es -> holds_token v = false -> 0 <= s ->
  count es <= 9 * olds (older_other v) live + Z.max 0 (8 - s).
Proof.
  intros q v n s live es W T; induction W as [| n s live queue e live' es I Q C D N L W IH];
    intros S0.
  - pose proof (olds_least (older_other v) live); unfold count; cbn [length]; lia.
  - assert (M : In e queue) by (eapply choose_member; eauto).
    assert (E : In e live) by (destruct (Q e M); tauto).
    assert (K : forall c, In c live' -> older_other v c = true -> In c live /\ fst c <> fst e).
    { intros c J O; destruct (L c J) as [K | (K & _)]; auto.
      unfold older_other, older in O; lia. }
    destruct (chosen_other q n s queue e v C I T) as [[F B] | [F B]];
      unfold next_streak in *; rewrite F in *.
    + assert (H : olds (older_other v) live' < olds (older_other v) live).
      { apply (olds_fewer _ live live' e N K); auto.
        apply andb_true_iff; split; [exact B | rewrite F; reflexivity]. }
      specialize (IH ltac:(lia)); unfold count in *; cbn [length]; lia.
    + pose proof (olds_kept (older_other v) live live' e N K).
      specialize (IH ltac:(lia)); unfold count in *; cbn [length]; lia.
Qed.

(** A holder: at most 9/8 of the older holders, and 1. *)
Theorem progress_holder_bound : forall q v n s live es,
  Waits (ProgressAware q) v n s live es -> holds_token v = true -> 0 <= s ->
  8 * count es <= 9 * olds (older_holder v) live + 8.
Proof.
  intros q v n s live es W T S0.
  assert (H : 8 * count es <= 9 * olds (older_holder v) live + Z.min 8 s); [| lia].
  revert S0; induction W as [| n s live queue e live' es I Q C D N L W IH]; intros S0.
  - pose proof (olds_least (older_holder v) live); unfold count; cbn [length]; lia.
  - assert (M : In e queue) by (eapply choose_member; eauto).
    assert (E : In e live) by (destruct (Q e M); tauto).
    assert (K : forall c, In c live' -> older_holder v c = true -> In c live /\ fst c <> fst e).
    { intros c J O; destruct (L c J) as [K | (K & _)]; auto.
      unfold older_holder, older in O; lia. }
    destruct (chosen_holder q n s queue e v C I T) as [[F B] | [F B]];
      unfold next_streak in *; rewrite F in *.
    + assert (H : olds (older_holder v) live' < olds (older_holder v) live).
      { apply (olds_fewer _ live live' e N K); auto.
        apply andb_true_iff; split; [exact B | exact F]. }
      specialize (IH ltac:(lia)); unfold count in *; cbn [length]; lia.
    + pose proof (olds_kept (older_holder v) live live' e N K).
      specialize (IH ltac:(lia)); unfold count in *; cbn [length]; lia.
Qed.

(** * Fixed priorities give no bound *)

Definition plain (g p a : Z) : coroutine :=
  Coroutine g 0 0 a 0 a p 0 0 (Fair.fresh_luggage 1024 2) empty_ledger.

(** One of priority 0 waits for any number of picks while one of priority 1 comes back. *)
Theorem fixed_no_bound : forall q (k : nat), exists live es,
  length es = k /\ Waits (Fixed q) (0, plain 0 0 0) 0 0 live es.
Proof.
  intros q k.
  assert (H : forall k n, 0 <= n -> exists es, length es = k /\
    Waits (Fixed q) (0, plain 0 0 0) n 0 [(1, plain 0 1 (n + 1))] es).
  { clear k; intros k; induction k as [|k IH]; intros n G.
    - exists []; split; auto; constructor.
    - destruct (IH (n + 1) ltac:(lia)) as (es & E & W).
      exists ((1, plain 0 1 (n + 1)) :: es); split; [simpl; lia |].
      apply WaitsFor with (queue := [(0, plain 0 0 0); (1, plain 0 1 (n + 1))])
                          (live' := [(1, plain 0 1 (n + 1 + 1))]).
      + simpl; auto.
      + intros c [<- | [<- | []]]; simpl; auto.
      + reflexivity.
      + discriminate.
      + repeat constructor; simpl; tauto.
      + intros c [<- | []]; right; unfold Newcomer; simpl; lia.
      + exact W. }
  destruct (H k 0 ltac:(lia)) as (es & E & W); eauto.
Qed.
