(* Groups of lanes, and steps that see a part of the sessions.

   Lanes that share a session are in one group ([groups_of], rule 14). The second half is about any
   state of lanes and sessions, and any action of a lane: the action is given its lane, the
   sessions that it may see and what is constant in a wave, and returns its lane and those
   sessions. Such a step is local ([step_local]), and disjoint groups of lanes that cover all
   work, in any complete interleaving, end where the canonical run ends
   ([groups_are_canonical]). Waves.v uses it for the machine of Machine.v, Systems.v for that of
   System.v. *)

From Coq Require Import List Arith Lia Bool.
From Wavelock Require Import Interleave.
Import ListNotations.

Lemma nth_ext {A} : forall l m : list A,
  (forall i, nth_error l i = nth_error m i) -> l = m.
Proof.
  induction l as [|a l IH]; intros [|b m] H; auto.
  - specialize (H 0). discriminate.
  - specialize (H 0). discriminate.
  - f_equal.
    + specialize (H 0). cbn in H. congruence.
    + apply IH. intros i. apply (H (S i)).
Qed.

Definition lane_in (ls : list nat) (l : nat) : bool := existsb (Nat.eqb l) ls.

Lemma lane_in_spec ls l : lane_in ls l = true <-> In l ls.
Proof.
  unfold lane_in. rewrite existsb_exists. split.
  - intros (x & Hx & E). apply Nat.eqb_eq in E. subst. auto.
  - intros H. exists l. split; auto. apply Nat.eqb_refl.
Qed.

(* The lanes a group has to run, in lane order. *)
Definition todo (nl : nat) (g : list nat) : list nat := filter (lane_in g) (seq 0 nl).

Definition meets (a b : list nat) : bool := existsb (lane_in b) a.

(* The groups that have a lane of [ls] become one. *)
Definition join_groups (ls : list nat) (gs : list (list nat)) : list (list nat) :=
  concat (filter (meets ls) gs) :: filter (fun g => negb (meets ls g)) gs.

(* Lanes that share a session are in one group (rule 14). *)
Definition groups_of (nl : nat) (h : list (list nat)) : list (list nat) :=
  fold_left (fun gs ls => join_groups ls gs) h (map (fun l => [l]) (seq 0 nl)).

Definition separate (gs : list (list nat)) : Prop :=
  forall a b ga gb l, nth_error gs a = Some ga -> nth_error gs b = Some gb ->
    In l ga -> In l gb -> a = b.

Lemma meets_spec a b : meets a b = true <-> exists l, In l a /\ In l b.
Proof.
  unfold meets. rewrite existsb_exists. split; intros (l & H1 & H2); exists l;
    split; auto; apply lane_in_spec; auto.
Qed.

Lemma separate_filter f gs : separate gs -> separate (filter f gs).
Proof.
  induction gs as [|g gs IH]; intros H; cbn; auto.
  assert (Hs : separate gs).
  { intros a b ga gb l Ha Hb Hla Hlb. assert (S a = S b); [|lia]. eapply H; eauto. }
  specialize (IH Hs). destruct (f g); auto.
  intros a b ga gb l Ha Hb Hla Hlb. destruct a, b; cbn in Ha, Hb; auto.
  - injection Ha as <-. apply nth_error_In in Hb. apply filter_In in Hb. destruct Hb as [Hb _].
    apply In_nth_error in Hb. destruct Hb as [k Hk]. assert (0 = S k); [|lia].
    exact (H 0 (S k) g gb l eq_refl Hk Hla Hlb).
  - injection Hb as <-. apply nth_error_In in Ha. apply filter_In in Ha. destruct Ha as [Ha _].
    apply In_nth_error in Ha. destruct Ha as [k Hk]. assert (0 = S k); [|lia].
    exact (H 0 (S k) g ga l eq_refl Hk Hlb Hla).
  - f_equal. eapply IH; eauto.
Qed.

Lemma join_separate ls gs : separate gs -> separate (join_groups ls gs).
Proof.
  intros H. unfold join_groups.
  assert (Hx : forall l g, In l (concat (filter (meets ls) gs)) ->
     In g (filter (fun g => negb (meets ls g)) gs) -> In l g -> False).
  { intros l g Hl Hg Hlg. apply in_concat in Hl. destruct Hl as (g' & Hg' & Hl).
    apply filter_In in Hg, Hg'. destruct Hg as [Hg E], Hg' as [Hg' E'].
    apply In_nth_error in Hg, Hg'. destruct Hg as [a Ha], Hg' as [b Hb].
    assert (a = b) by (eapply H; eauto). subst. rewrite Ha in Hb. injection Hb as ->.
    rewrite E' in E. discriminate. }
  intros a b ga gb l Ha Hb Hla Hlb. destruct a, b; cbn in Ha, Hb; auto.
  - injection Ha as <-. exfalso. apply (Hx l gb); auto. eapply nth_error_In; eauto.
  - injection Hb as <-. exfalso. apply (Hx l ga); auto. eapply nth_error_In; eauto.
  - f_equal. eapply (separate_filter _ gs H); eauto.
Qed.

(* Two lanes that are in one group stay in one group. *)
Definition together (gs : list (list nat)) (l m : nat) : Prop :=
  exists g, In g gs /\ In l g /\ In m g.

Lemma join_together ls gs l m : together gs l m -> together (join_groups ls gs) l m.
Proof.
  intros (g & Hg & Hl & Hm). unfold join_groups. destruct (meets ls g) eqn:E.
  - exists (concat (filter (meets ls) gs)). split; [left; auto|].
    split; apply in_concat; exists g; split; auto; apply filter_In; auto.
  - exists g. split; auto. right. apply filter_In. rewrite E. auto.
Qed.

Lemma join_joins ls gs l m : In l ls -> In m ls ->
  (exists g, In g gs /\ In l g) -> (exists g, In g gs /\ In m g) ->
  together (join_groups ls gs) l m.
Proof.
  intros Hl Hm (g & Hg & Hlg) (g' & Hg' & Hmg). exists (concat (filter (meets ls) gs)).
  split; [left; auto|].
  split; apply in_concat; [exists g|exists g']; split; auto; apply filter_In; split; auto;
    apply meets_spec; eauto.
Qed.

Lemma groups_of_spec nl h :
  separate (groups_of nl h) /\
  (forall l, l < nl -> together (groups_of nl h) l l) /\
  (forall ls l m, In ls h -> In l ls -> In m ls -> l < nl -> m < nl ->
     together (groups_of nl h) l m).
Proof.
  unfold groups_of.
  assert (G : forall h gs, separate gs -> (forall l, l < nl -> together gs l l) ->
    let gs' := fold_left (fun gs ls => join_groups ls gs) h gs in
    separate gs' /\ (forall l m, together gs l m -> together gs' l m) /\
    (forall ls l m, In ls h -> In l ls -> In m ls -> l < nl -> m < nl -> together gs' l m)).
  { clear h. induction h as [|ls h IH]; intros gs Hs Ht; cbn; [repeat split; auto; tauto|].
    destruct (IH (join_groups ls gs)) as (I1 & I2 & I3).
    - apply join_separate; auto.
    - intros l Hl. apply join_together. auto.
    - split; auto. split.
      + intros l m Hlm. apply I2. apply join_together. auto.
      + intros ls' l m [<-|Hin] Hl Hm Hnl Hnm; [|eauto].
        apply I2. apply join_joins; auto.
        * destruct (Ht l Hnl) as (g & Hg & H1 & _). eauto.
        * destruct (Ht m Hnm) as (g & Hg & H1 & _). eauto. }
  destruct (G h (map (fun l => [l]) (seq 0 nl))) as (G1 & G2 & G3).
  - intros a b ga gb l Ha Hb Hla Hlb. rewrite nth_error_map in Ha, Hb.
    destruct (nth_error (seq 0 nl) a) as [x|] eqn:Ea; [|discriminate].
    destruct (nth_error (seq 0 nl) b) as [y|] eqn:Eb; [|discriminate].
    cbn in Ha, Hb. injection Ha as <-. injection Hb as <-.
    destruct Hla as [->|[]], Hlb as [->|[]].
    assert (Hnd := seq_NoDup nl 0). rewrite NoDup_nth_error in Hnd. apply Hnd.
    + apply nth_error_Some. congruence.
    + congruence.
  - intros l Hl. exists [l]. split; [|split; left; auto].
    apply in_map_iff. exists l. split; auto. apply in_seq. lia.
  - split; auto. split; auto.
    intros l Hl. apply G2. exists [l]. split; [|split; left; auto].
    apply in_map_iff. exists l. split; auto. apply in_seq. lia.
Qed.

Lemma nth_nonempty_in {A} i (h : list (list A)) l : In l (nth i h []) -> In (nth i h []) h.
Proof.
  intros H. destruct (Nat.lt_ge_cases i (length h)) as [Hi|Hi].
  - apply nth_In. auto.
  - rewrite nth_overflow in H; auto. destruct H.
Qed.

Lemma nth_map_seq {A} (f : nat -> A) n i x :
  nth_error (map f (seq 0 n)) i = Some x <-> i < n /\ x = f i.
Proof.
  rewrite nth_error_map. split.
  - destruct (nth_error (seq 0 n) i) as [j|] eqn:E; [|discriminate].
    intros H. injection H as <-.
    assert (Hi : i < n).
    { rewrite <- (seq_length n 0). apply nth_error_Some. congruence. }
    split; auto. f_equal. rewrite (nth_error_nth' _ 0) in E by (rewrite seq_length; auto).
    injection E as <-. rewrite seq_nth; auto.
  - intros [Hi ->]. rewrite (nth_error_nth' _ 0) by (rewrite seq_length; auto).
    rewrite seq_nth; auto.
Qed.

(* The first lane of a lane's group. *)
Definition group_of (nl : nat) (h : list (list nat)) (l : nat) : nat :=
  match find (fun g => lane_in g l) (groups_of nl h) with
  | Some g => hd l (todo nl g)
  | None => l
  end.

(* The first lane of a session's group; a session without lanes is in no group. *)
Definition owner_of (nl : nat) (h : list (list nat)) (ls : list nat) : nat :=
  match filter (fun l => l <? nl) ls with l :: _ => group_of nl h l | [] => nl end.

(* Lanes of one group have one first lane. *)
Lemma group_of_spec nl h l : l < nl -> exists g, In g (groups_of nl h) /\ In l g /\
  group_of nl h l = hd l (todo nl g).
Proof.
  intros Hl. destruct (groups_of_spec nl h) as (_ & G2 & _).
  destruct (G2 l Hl) as (g & Hg & Hlg & _). unfold group_of.
  destruct (find (fun g => lane_in g l) (groups_of nl h)) as [g'|] eqn:E.
  - apply find_some in E. destruct E as [E1 E2]. apply lane_in_spec in E2. eauto.
  - exfalso. assert (X := find_none _ _ E g Hg). cbn in X.
    apply lane_in_spec in Hlg. congruence.
Qed.

Lemma todo_in nl g l : In l g -> l < nl -> In l (todo nl g).
Proof.
  intros H1 H2. unfold todo. apply filter_In. split; [apply in_seq; lia|].
  apply lane_in_spec. auto.
Qed.

Lemma group_of_together nl h l m : l < nl -> m < nl -> together (groups_of nl h) l m ->
  group_of nl h l = group_of nl h m.
Proof.
  intros Hl Hm (g & Hg & Hlg & Hmg). destruct (groups_of_spec nl h) as (G1 & _).
  destruct (group_of_spec nl h l Hl) as (gl & A1 & A2 & ->).
  destruct (group_of_spec nl h m Hm) as (gm & B1 & B2 & ->).
  assert (U : forall g1 i, In g1 (groups_of nl h) -> In i g1 -> In i g -> g1 = g).
  { intros g1 i H1 H2 H3. apply In_nth_error in H1. destruct H1 as [a Ha].
    apply In_nth_error in Hg. destruct Hg as [b Hb].
    assert (a = b) by (eapply G1; eauto). subst. congruence. }
  assert (gl = g) by (eapply U; eauto). assert (gm = g) by (eapply U; eauto). subst.
  assert (T := todo_in nl g l Hlg Hl). destruct (todo nl g); [destruct T|reflexivity].
Qed.

(* A session that lives on a lane is of that lane's group. *)
Lemma owner_of_lane nl h i l : In l (nth i h []) -> l < nl ->
  owner_of nl h (nth i h []) = group_of nl h l.
Proof.
  intros Hin Hl. unfold owner_of.
  destruct (filter (fun l => l <? nl) (nth i h [])) as [|m r] eqn:E.
  - exfalso. assert (X : In l (filter (fun l => l <? nl) (nth i h []))).
    { apply filter_In. split; auto. apply Nat.ltb_lt. auto. }
    rewrite E in X. destruct X.
  - assert (X : In m (filter (fun l => l <? nl) (nth i h []))) by (rewrite E; left; auto).
    apply filter_In in X. destruct X as [X1 X2]. apply Nat.ltb_lt in X2.
    apply group_of_together; auto.
    destruct (groups_of_spec nl h) as (_ & _ & G3).
    apply (G3 (nth i h [])); auto. eapply nth_nonempty_in; eauto.
Qed.

(* ---- Steps that see a part of the sessions ---- *)

Section Mask.

Variable S : Type.

(* The sessions of a list that are seen; number [n] is the first. *)
Fixpoint mask (vis : nat -> bool) (n : nat) (ss : list S) : list (option S) :=
  match ss with
  | [] => []
  | s :: r => (if vis n then Some s else None) :: mask vis (Datatypes.S n) r
  end.

(* What was seen is replaced, the others stay. *)
Fixpoint merge (vis : nat -> bool) (n : nat) (v : list (option S)) (ss : list S) : list S :=
  match ss, v with
  | s :: r, o :: w =>
      (if vis n then match o with Some s' => s' | None => s end else s)
        :: merge vis (Datatypes.S n) w r
  | ss, _ => ss
  end.

Lemma mask_nth vis ss : forall n i,
  nth_error (mask vis n ss) i =
  option_map (fun s => if vis (n + i) then Some s else None) (nth_error ss i).
Proof.
  induction ss as [|s ss IH]; intros n i; destruct i; cbn; auto.
  - rewrite Nat.add_0_r. auto.
  - rewrite IH, Nat.add_succ_r. auto.
Qed.

Lemma merge_nth vis ss : forall n v i,
  nth_error (merge vis n v ss) i =
  match nth_error ss i with
  | None => None
  | Some s => Some (if vis (n + i) then match nth_error v i with Some (Some s') => s' | _ => s end
                    else s)
  end.
Proof.
  induction ss as [|s ss IH]; intros n v i.
  - destruct i, v; reflexivity.
  - destruct v as [|o v].
    + destruct i; cbn; [destruct (vis _); auto|].
      destruct (nth_error ss i); auto. destruct (vis _); auto.
    + destruct i; cbn.
      * rewrite Nat.add_0_r. destruct (vis n); auto; destruct o; auto.
      * rewrite IH, Nat.add_succ_r. auto.
Qed.

Lemma merge_length vis ss : forall n v, length (merge vis n v ss) = length ss.
Proof.
  induction ss as [|s ss IH]; intros n v; destruct v; cbn; auto.
Qed.

Lemma mask_ext vis vis' ss : forall n, (forall i, i < length ss -> vis (n + i) = vis' (n + i)) ->
  mask vis n ss = mask vis' n ss.
Proof.
  intros n H. apply nth_ext. intros i. rewrite !mask_nth.
  destruct (nth_error ss i) eqn:E; cbn; auto. rewrite H; auto.
  apply nth_error_Some. congruence.
Qed.

Lemma merge_ext vis vis' v ss : forall n,
  (forall i, i < length ss -> vis (n + i) = vis' (n + i)) ->
  merge vis n v ss = merge vis' n v ss.
Proof.
  intros n H. apply nth_ext. intros i. rewrite !merge_nth.
  destruct (nth_error ss i) eqn:E; auto. rewrite H; auto.
  apply nth_error_Some. congruence.
Qed.

End Mask.

Arguments mask {S}.
Arguments merge {S}.

Section Seeing.

Variables St L S R : Type.
Variable lanes : St -> list L.
Variable sessions : St -> list S.
Variable rest : St -> R.            (* constant in a wave *)
Variable put : list L -> list S -> St -> St.

Hypothesis put_lanes : forall ls ss st, lanes (put ls ss st) = ls.
Hypothesis put_sessions : forall ls ss st, sessions (put ls ss st) = ss.
Hypothesis put_rest : forall ls ss st, rest (put ls ss st) = rest st.
Hypothesis parts : forall a b,
  lanes a = lanes b -> sessions a = sessions b -> rest a = rest b -> a = b.

(* What lane [me] of [n] does; [true] if it made a step. *)
Variable act : R -> nat -> nat -> L -> list (option S) -> bool * (L * list (option S)).

Definition step_seeing (vis : nat -> bool) (me : nat) (st : St) : bool * St :=
  match nth_error (lanes st) me with
  | None => (false, st)
  | Some l =>
      let '(b, (l', v')) := act (rest st) (length (lanes st)) me l (mask vis 0 (sessions st)) in
      (b, put (upd me l' (lanes st)) (merge vis 0 v' (sessions st)) st)
  end.

Definition position := (nat + nat)%type.

Definition get (st : St) (p : position) : option (L + S) :=
  match p with
  | inl i => option_map inl (nth_error (lanes st) i)
  | inr i => option_map inr (nth_error (sessions st) i)
  end.

Definition shape (st : St) := (length (lanes st), length (sessions st), rest st).

Lemma get_ext (c d : St) : shape c = shape d -> (forall p, get c p = get d p) -> c = d.
Proof.
  unfold shape. intros Hs Hg. injection Hs as _ _ Hr. apply parts; auto; apply nth_ext; intros i.
  - specialize (Hg (inl i)). cbn in Hg.
    destruct (nth_error (lanes c) i), (nth_error (lanes d) i); cbn in Hg; congruence.
  - specialize (Hg (inr i)). cbn in Hg.
    destruct (nth_error (sessions c) i), (nth_error (sessions d) i); cbn in Hg; congruence.
Qed.

Definition foot (vis : nat -> bool) (me : nat) : position -> bool :=
  fun p => match p with inl i => Nat.eqb i me | inr i => vis i end.

(* A step writes its lane and the sessions it sees, and depends on nothing else. *)
Theorem step_local vis me : local _ _ _ _ get shape (foot vis me) (step_seeing vis me).
Proof.
  unfold step_seeing. split; [split|].
  - intros c. destruct (nth_error (lanes c) me) as [l|]; auto.
    destruct (act _ _ _ _ _) as [b [l' v']]. unfold shape; cbn.
    rewrite put_lanes, put_sessions, put_rest, upd_length, merge_length. auto.
  - intros c p Hp. destruct (nth_error (lanes c) me) as [l|]; auto.
    destruct (act _ _ _ _ _) as [b [l' v']]. destruct p as [i|i]; cbn in *;
      rewrite ?put_lanes, ?put_sessions.
    + rewrite nth_upd. apply Nat.eqb_neq in Hp. destruct (Nat.eqb_spec me i); [congruence|auto].
    + rewrite merge_nth. cbn. rewrite Hp. destruct (nth_error (sessions c) i); auto.
  - intros c d [Hs Hg].
    assert (Hl : nth_error (lanes c) me = nth_error (lanes d) me).
    { specialize (Hg (inl me)). cbn in Hg. rewrite Nat.eqb_refl in Hg. specialize (Hg eq_refl).
      destruct (nth_error (lanes c) me), (nth_error (lanes d) me); cbn in Hg; congruence. }
    assert (Hss : forall i, vis i = true -> nth_error (sessions c) i = nth_error (sessions d) i).
    { intros i Hi. specialize (Hg (inr i) Hi). cbn in Hg.
      destruct (nth_error (sessions c) i), (nth_error (sessions d) i); cbn in Hg; congruence. }
    assert (Hs' := Hs). unfold shape in Hs'. injection Hs' as Hs1 Hs2 Hs3.
    assert (Hm : mask vis 0 (sessions c) = mask vis 0 (sessions d)).
    { apply nth_ext. intros i. rewrite !mask_nth. cbn. destruct (vis i) eqn:Ei.
      - rewrite (Hss i Ei). auto.
      - destruct (nth_error (sessions c) i) eqn:E1, (nth_error (sessions d) i) eqn:E2; auto.
        + apply nth_error_None in E2. assert (i < length (sessions c))
            by (apply nth_error_Some; congruence). lia.
        + apply nth_error_None in E1. assert (i < length (sessions d))
            by (apply nth_error_Some; congruence). lia. }
    rewrite <- Hl, <- Hm, <- Hs1, <- Hs3.
    destruct (nth_error (lanes c) me) as [l|] eqn:E.
    2:{ cbn. split; auto. split; auto. }
    destruct (act _ _ _ _ _) as [b [l' v']]. cbn. split; auto. split.
    + unfold shape; cbn. rewrite !put_lanes, !put_sessions, !put_rest, !upd_length, !merge_length.
      congruence.
    + intros [i|i] Hp; cbn in *; rewrite ?put_lanes, ?put_sessions.
      * apply Nat.eqb_eq in Hp. subst i. rewrite !nth_upd, Nat.eqb_refl, <- Hl, E. auto.
      * rewrite !merge_nth. cbn. rewrite (Hss i Hp). auto.
Qed.

Lemma step_seeing_ext vis vis' me (st : St) :
  (forall i, i < length (sessions st) -> vis i = vis' i) ->
  step_seeing vis me st = step_seeing vis' me st.
Proof.
  intros H. unfold step_seeing. destruct (nth_error (lanes st) me) as [l|]; auto.
  rewrite (mask_ext _ vis vis') by auto. destruct (act _ _ _ _ _) as [b [l' v']].
  rewrite (merge_ext _ vis vis') by auto. auto.
Qed.

Lemma step_keeps vis me (st : St) :
  shape (snd (step_seeing vis me st)) = shape st.
Proof. apply (step_local vis me). Qed.

(* A lane without work has no step, whatever it sees. *)
Variable idle_lane : L -> bool.
Hypothesis idle_act : forall r n me l v, me < n -> idle_lane l = true ->
  fst (act r n me l v) = false /\ fst (snd (act r n me l v)) = l /\
  forall i s, nth_error v i = Some (Some s) -> nth_error (snd (snd (act r n me l v))) i = Some
      (Some s).

Lemma idle_step vis me (st : St) l :
  nth_error (lanes st) me = Some l -> idle_lane l = true ->
  step_seeing vis me st = (false, st).
Proof.
  intros Hl Hi. unfold step_seeing. rewrite Hl.
  destruct (idle_act (rest st) (length (lanes st)) me l (mask vis 0 (sessions st)))
    as (H1 & H2 & H3); auto.
  { apply nth_error_Some. congruence. }
  destruct (act _ _ _ _ _) as [b [l' v']]. cbn in *. subst b l'. f_equal.
  apply parts; rewrite ?put_lanes, ?put_sessions, ?put_rest; auto.
  - apply upd_same. auto.
  - apply nth_ext. intros i. rewrite merge_nth. cbn.
    destruct (nth_error (sessions st) i) as [s|] eqn:E; auto. destruct (vis i) eqn:Ev; auto.
    rewrite (H3 i s); auto. rewrite mask_nth, E. cbn. rewrite Ev. auto.
Qed.

Notation iter vis := (iter St (fun l => step_seeing (vis l) l)).
Notation exec vis := (exec St (fun l => step_seeing (vis l) l)).
Notation complete := (complete St).

(* Groups of lanes, run by any workers in any interleaving. *)
Definition parallel_wave (vis : nat -> nat -> bool) (gs : list (list nat)) (sched : list nat)
  (st : St) : list (list nat) * St :=
  exec vis sched (map (todo (length (lanes st))) gs, st).

(* The footprint of a group: its lanes, and the sessions its lanes see. *)
Definition group_foot (vis : nat -> nat -> bool) (g : list nat) : position -> bool :=
  fun p => match p with inl i => lane_in g i | inr i => existsb (fun l => vis l i) g end.

(* Disjoint groups that cover the lanes with work, each seeing on every lane what the canonical
   step of that lane sees ([sees]), end where all lanes in order end. *)
Theorem groups_are_canonical sees vis gs sched (st : St) :
  (forall g l i, In g gs -> In l g -> i < length (sessions st) -> vis l i = sees l i) ->
  (forall a b ga gb, nth_error gs a = Some ga -> nth_error gs b = Some gb -> a <> b ->
     forall p, group_foot vis ga p = true -> group_foot vis gb p = true -> False) ->
  (forall l x, nth_error (lanes st) l = Some x -> (forall g, In g gs -> ~ In l g) ->
     idle_lane x = true) ->
  complete (parallel_wave vis gs sched st) ->
  exists n, iter sees n (seq 0 (length (lanes st)), st)
            = ([], snd (parallel_wave vis gs sched st)).
Proof.
  intros Hvis Hdis Hidle Hc.
  set (nl := length (lanes st)) in *. set (ns := length (sessions st)) in *.
  set (eye := fun l i => (i <? ns) && sees l i).
  set (P := fun c : St => length (sessions c) = ns).
  assert (Pstep : forall v l c, P c -> P (snd (step_seeing (v l) l c))).
  { intros v l c Hc'. unfold P in *. assert (K := step_keeps (v l) l c).
    unfold shape in K. injection K as _ K _. congruence. }
  assert (Hexec : parallel_wave vis gs sched st
                  = exec eye sched (map (fun g => filter g (seq 0 nl)) (map lane_in gs), st)).
  { unfold parallel_wave. rewrite map_map. fold nl.
    apply (exec_ext _ _ (fun l => step_seeing (eye l) l) P); [apply Pstep|reflexivity|].
    intros t l d Ht Hl Hd. apply in_map_iff in Ht. destruct Ht as (g & <- & Hg).
    apply filter_In in Hl. destruct Hl as [_ Hl]. apply lane_in_spec in Hl.
    apply step_seeing_ext. intros i Hi. unfold eye. rewrite Hd in Hi.
    rewrite (Hvis g l i); auto. destruct (Nat.ltb_spec i ns); [auto|lia]. }
  rewrite Hexec in *.
  assert (Hrun : exists n, iter eye n (seq 0 nl, st)
     = ([], snd (exec eye sched (map (fun g => filter g (seq 0 nl)) (map lane_in gs), st)))).
  { apply (interleaving_ends_canonically _ _ _ _ get shape get_ext
             (fun l => step_seeing (eye l) l) (map lane_in gs) (map (group_foot eye) gs)).
    - rewrite !map_length. auto.
    - intros k g F Hk HF l Hl Hg. rewrite nth_error_map in Hk, HF.
      destruct (nth_error gs k) as [g0|] eqn:E; [|discriminate]. cbn in Hk, HF.
      injection Hk as <-. injection HF as <-. apply lane_in_spec in Hg.
      eapply local_weaken; [|apply step_local]. intros [i|i]; cbn.
      + intros Hi. apply Nat.eqb_eq in Hi. subst. apply lane_in_spec. auto.
      + intros Hi. apply existsb_exists. eauto.
    - intros a b Fa Fb p Ha Hb Hne. rewrite nth_error_map in Ha, Hb.
      destruct (nth_error gs a) as [ga|] eqn:Ea; [|discriminate].
      destruct (nth_error gs b) as [gb|] eqn:Eb; [|discriminate].
      cbn in Ha, Hb. injection Ha as <-. injection Hb as <-.
      assert (Hsub : forall g, In g gs -> group_foot eye g p = true -> group_foot vis g p = true).
      { intros g Hg. destruct p as [i|i]; cbn; auto.
        intros Hx. apply existsb_exists in Hx. destruct Hx as (l & Hl & Hx).
        unfold eye in Hx. apply andb_prop in Hx. destruct Hx as [Hx1 Hx2].
        apply Nat.ltb_lt in Hx1. apply existsb_exists. exists l. split; auto.
        rewrite (Hvis g); auto. }
      intros H1 H2. apply (Hdis a b ga gb Ea Eb Hne p); apply Hsub; auto;
        eapply nth_error_In; eauto.
    - intros a b ga gb l Ha Hb _ Hla Hlb. rewrite nth_error_map in Ha, Hb.
      destruct (nth_error gs a) as [ga0|] eqn:Ea; [|discriminate].
      destruct (nth_error gs b) as [gb0|] eqn:Eb; [|discriminate].
      cbn in Ha, Hb. injection Ha as <-. injection Hb as <-.
      destruct (Nat.eq_dec a b) as [|Hne]; auto. exfalso.
      apply (Hdis a b ga0 gb0 Ea Eb Hne (inl l)); cbn; auto.
    - (* A lane in no group is idle now and stays as it is. *)
      intros l Hl Hnone m.
      assert (Hout : forall g, In g gs -> ~ In l g).
      { intros g Hg Hin. assert (lane_in g l = false) as Hf.
        { apply Hnone. apply in_map. auto. }
        apply lane_in_spec in Hin. congruence. }
      apply in_seq in Hl. destruct (nth_error (lanes st) l) as [x|] eqn:Ex.
      2:{ apply nth_error_None in Ex. unfold nl in Hl. lia. }
      apply idle_step with x; [|eapply Hidle; eauto].
      assert (G : forall m, nth_error (lanes (snd (iter eye m (seq 0 nl, st)))) l = Some x).
      { clear m. induction m as [|m IH]; cbn; auto.
        destruct (iter eye m (seq 0 nl, st)) as [t c]. cbn [snd] in IH.
        destruct t as [|l' r]; cbn; auto. unfold move; cbn [fst snd].
        destruct (Nat.eq_dec l' l) as [->|Hne].
        - rewrite (idle_step (eye l) l c x IH); [|eapply Hidle; eauto]. cbn. auto.
        - destruct (step_local (eye l') l') as [[_ Hw] _].
          specialize (Hw c (inl l)). cbn in Hw.
          destruct (step_seeing (eye l') l' c) as [b c']. cbn [snd] in Hw.
          assert (Heq : option_map (@inl L S) (nth_error (lanes c') l)
                      = option_map inl (nth_error (lanes c) l)).
          { apply Hw. apply Nat.eqb_neq. auto. }
          rewrite IH in Heq. cbn in Heq.
          destruct b; cbn; destruct (nth_error (lanes c') l); cbn in Heq; congruence. }
      apply G.
    - exact Hc. }
  destruct Hrun as [n Hn]. exists n. rewrite <- Hn. symmetry.
  apply (iter_ext _ _ (fun l => step_seeing (sees l) l) P); [apply Pstep|reflexivity|].
  intros l d Hl Hd. apply step_seeing_ext. intros i Hi. unfold eye. rewrite Hd in Hi.
  destruct (Nat.ltb_spec i ns); [auto|lia].
Qed.

(* ---- One worker, that runs the groups one after the other ---- *)

(* One move of the first group that is not done. *)
Fixpoint solo_move (vis : nat -> nat -> bool) (ts : list (list nat)) (c : St)
  : list (list nat) * St :=
  match ts with
  | [] => ([], c)
  | [] :: r => solo_move vis r c
  | (l :: t) :: r =>
      let (b, c') := step_seeing (vis l) l c in ((if b then l :: t else t) :: r, c')
  end.

Fixpoint solo (vis : nat -> nat -> bool) (n : nat) (x : list (list nat) * St)
  : list (list nat) * St :=
  match n with O => x | Datatypes.S m => let y := solo vis m x in solo_move vis (fst y) (snd y) end.

Lemma solo_move_concat vis ts : forall c,
  (concat (fst (solo_move vis ts c)), snd (solo_move vis ts c))
  = move _ (fun l => step_seeing (vis l) l) (concat ts, c).
Proof.
  induction ts as [|t ts IH]; intros c; cbn; auto.
  destruct t as [|l t]; cbn; auto. unfold move; cbn [fst snd].
  destruct (step_seeing (vis l) l c) as [b c']. destruct b; auto.
Qed.

(* After any number of moves the one worker is where the canonical run is, if the groups are
   consecutive lanes. *)
Theorem one_worker_is_the_canonical_run vis n ts c :
  (concat (fst (solo vis n (ts, c))), snd (solo vis n (ts, c))) = iter vis n (concat ts, c).
Proof.
  induction n as [|n IH]; cbn; auto. rewrite <- IH.
  destruct (solo vis n (ts, c)) as [ts' c']. cbn [fst snd]. apply solo_move_concat.
Qed.

Lemma solo_is_a_schedule vis n ts c :
  exists sched, snd (exec vis sched (ts, c)) = snd (solo vis n (ts, c)) /\
    (fst (solo vis n (ts, c)) = [] -> complete (exec vis sched (ts, c))).
Proof.
  (* The worker's list is what is left of the groups, without some that are done. *)
  assert (G : exists sched d, fst (exec vis sched (ts, c)) = d ++ fst (solo vis n (ts, c)) /\
     Forall (fun t => t = []) d /\ snd (exec vis sched (ts, c)) = snd (solo vis n (ts, c))).
  { induction n as [|n (sched & d & H1 & H2 & H3)].
    - exists [], []. cbn. auto.
    - cbn. destruct (solo vis n (ts, c)) as [ts' c']. cbn [fst snd] in *.
      destruct (exec vis sched (ts, c)) as [us e] eqn:Ee. cbn [fst snd] in *. subst us e.
      revert d H2 Ee. induction ts' as [|t ts' IH]; intros d H2 Ee; cbn [solo_move].
      + exists sched, d. rewrite Ee. cbn. auto.
      + destruct t as [|l t].
        * destruct (IH (d ++ [[]])) as (s & d' & A & B & C).
          -- apply Forall_app. auto.
          -- rewrite Ee. rewrite <- app_assoc. auto.
          -- exists s, d'. auto.
        * destruct (step_seeing (vis l) l c') as [b c''] eqn:Es.
          exists (sched ++ [length d]), d.
          unfold Interleave.exec in *. rewrite fold_left_app, Ee. cbn.
          unfold pick_move. cbn [fst snd].
          rewrite nth_error_app2, Nat.sub_diag by lia. cbn [nth_error].
          unfold move. cbn [fst snd]. rewrite Es.
          assert (Hu : forall x, upd (length d) x (d ++ (l :: t) :: ts') = d ++ x :: ts').
          { intros x. clear. induction d; cbn; auto. rewrite IHd. auto. }
          destruct b; cbn [fst snd]; rewrite Hu; auto. }
  destruct G as (sched & d & H1 & H2 & H3). exists sched. split; auto.
  intros Hn. unfold Interleave.complete. rewrite H1, Hn, app_nil_r. auto.
Qed.

End Seeing.
