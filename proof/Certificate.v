(* The checker of certificates, as crates/certify computes it, and its soundness.

   The functions follow crates/certify/src/check.rs one by one: [mark_lanes],
   [check_groups], [release], [take_sessions] and [take_channels], [hold], [check_sessions],
   [check_versions], [check_picks], [check_claims], [check]. Numbers are unbounded here; the digest sum is
   taken modulo 2^64. Where a lane is refused the code leaves some lanes marked; the model
   drops those marks. No later check can see them: each has a mark of its own. *)

From Coq Require Import List Arith NArith Lia Bool.
From Wavelock Require Import Interleave.
Import ListNotations.

Inductive span := Cycles (n : N) | Picks (n : N).

Definition channel := (nat * nat)%type. (* owner session, index *)

Record pick := { p_lane : nat; p_session : nat; p_slot : N; p_generation : N }.

Record sets := { x_sessions : list nat; x_channels : list channel }.

Record claim := {
  m_lanes : list nat;
  m_version : N;
  m_sets : option sets;
  m_digest : N;
  m_picks : list pick }.

Record certificate := { t_wave : N; t_span : span; t_claims : list claim }.

(* What the machine states about a lane: of its group, the first lane, the number of sessions,
   and whether it has something to run. *)
Record lane_facts := {
  f_digest : N; f_version : N; f_group : nat; f_sessions : nat; f_work : bool }.

(* [a_sessions]: by session, the first lane of its group. *)
Record facts := {
  a_wave : N; a_span : span; a_lanes : list lane_facts; a_sessions : list nat }.

Inductive refusal :=
| BadWave (claimed open : N)
| BadSpan (claimed actual : span)
| NoLane (claim : nat)
| UnknownLane (lane lanes : nat)
| LaneShared (lane first second : nat)
| UnknownSession (session sessions : nat)
| SessionShared (session first second : nat)
| ChannelShared (c : channel) (first second : nat)
| ForeignChannel (c : channel) (group : nat)
| SetVersion (group : nat) (claimed actual : N) (accepted : option N)
| ReadySet (group : nat) (claimed actual : N)
| PickSession (group session : nat)
| PickCount (group : nat) (found allowed : N)
| PickLane (group lane : nat)
| OtherGroup (lane claimed actual : nat)
| SplitGroup (group lane : nat)
| Unclaimed (group lane : nat)
| OtherSession (session claimed : nat) (actual : option nat)
| SessionCount (group found actual : nat).

Definition code (r : refusal) : nat :=
  match r with
  | BadWave _ _ => 0 | BadSpan _ _ => 1 | NoLane _ => 2 | UnknownLane _ _ => 3
  | LaneShared _ _ _ => 4 | UnknownSession _ _ => 5 | SessionShared _ _ _ => 6
  | ChannelShared _ _ _ => 7 | ForeignChannel _ _ => 8 | SetVersion _ _ _ _ => 9
  | ReadySet _ _ _ => 10 | PickSession _ _ => 11 | PickCount _ _ _ => 12
  | PickLane _ _ => 13 | OtherGroup _ _ _ => 14 | SplitGroup _ _ => 15 | Unclaimed _ _ => 16
  | OtherSession _ _ _ => 17 | SessionCount _ _ _ => 18
  end.

Record checker := {
  k_marks : list (N * nat);                 (* by lane: which check marked it, for which group *)
  k_sessions : list (option nat);           (* by session: the group that holds it *)
  k_channels : list (channel * nat);        (* by channel: the same *)
  k_accepted : list (option (N * sets));    (* by first lane of a group *)
  k_checks : N }.

Definition new_checker (lanes sessions : nat) : checker :=
  {| k_marks := repeat (0%N, 0) lanes;
     k_sessions := repeat None sessions;
     k_channels := [];
     k_accepted := repeat None lanes;
     k_checks := 0 |}.

Definition channel_eqb (a b : channel) : bool :=
  (fst a =? fst b) && (snd a =? snd b).

Lemma channel_eqb_spec a b : reflect (a = b) (channel_eqb a b).
Proof.
  destruct a as [a1 a2], b as [b1 b2]. unfold channel_eqb. simpl.
  destruct (Nat.eqb_spec a1 b1); destruct (Nat.eqb_spec a2 b2); simpl;
    constructor; congruence.
Qed.

Fixpoint holder_of (c : channel) (l : list (channel * nat)) : option nat :=
  match l with
  | [] => None
  | (d, g) :: r => if channel_eqb c d then Some g else holder_of c r
  end.

Definition drop_channel (c : channel) (l : list (channel * nat)) : list (channel * nat) :=
  filter (fun e => negb (channel_eqb c (fst e))) l.

Definition first_lane (m : claim) : nat := hd 0 (m_lanes m).

(* Lanes exist, and no two groups have one. *)
Fixpoint mark_lanes (n : N) (g : nat) (ls : list nat) (marks : list (N * nat))
  : list (N * nat) + refusal :=
  match ls with
  | [] => inl marks
  | l :: r =>
      match nth_error marks l with
      | None => inr (UnknownLane l (length marks))
      | Some (m, h) =>
          if N.eqb m n then inr (LaneShared l h g)
          else mark_lanes n g r (upd l (n, g) marks)
      end
  end.

Fixpoint mark_claims (n : N) (at_ : nat) (ms : list claim) (marks : list (N * nat))
  : list (N * nat) + refusal :=
  match ms with
  | [] => inl marks
  | m :: r =>
      match m_lanes m with
      | [] => inr (NoLane at_)
      | g :: _ =>
          match mark_lanes n g (m_lanes m) marks with
          | inl marks' => mark_claims n (S at_) r marks'
          | inr e => inr e
          end
      end
  end.

(* The claimed groups are the machine's, whole, and include every group with work. *)
Definition is_claimed (n : N) (marks : list (N * nat)) (g : nat) : bool :=
  match nth_error marks g with Some (m, _) => N.eqb m n | None => false end.

Fixpoint check_groups (n : N) (all : list (N * nat)) (l : nat) (marks : list (N * nat))
  (fl : list lane_facts) : option refusal :=
  match marks, fl with
  | (m, h) :: marks', f :: fl' =>
      if N.eqb m n then
        if Nat.eqb h (f_group f) then check_groups n all (S l) marks' fl'
        else Some (OtherGroup l h (f_group f))
      else if is_claimed n all (f_group f) then Some (SplitGroup (f_group f) l)
      else if f_work f then Some (Unclaimed (f_group f) l)
      else check_groups n all (S l) marks' fl'
  | _, _ => None
  end.

Definition accepted_at (k : checker) (g : nat) : option (N * sets) :=
  match nth_error (k_accepted k) g with Some a => a | None => None end.

(* A group gives up what it held. *)
Definition release (g : nat) (k : checker) : checker :=
  match accepted_at k g with
  | None => k
  | Some (_, x) =>
      {| k_marks := k_marks k;
         k_sessions := fold_left (fun l s => upd s None l) (x_sessions x) (k_sessions k);
         k_channels := fold_left (fun l c => drop_channel c l) (x_channels x) (k_channels k);
         k_accepted := upd g None (k_accepted k);
         k_checks := k_checks k |}
  end.

(* Sessions that no group holds; what was taken before a refusal is returned too. *)
Fixpoint take_sessions (g : nat) (ss : list nat) (held : list (option nat))
  : list (option nat) * list nat * option refusal :=
  match ss with
  | [] => (held, [], None)
  | s :: r =>
      match nth_error held s with
      | None => (held, [], Some (UnknownSession s (length held)))
      | Some (Some h) => (held, [], Some (SessionShared s h g))
      | Some None =>
          let '(held', taken, e) := take_sessions g r (upd s (Some g) held) in
          (held', s :: taken, e)
      end
  end.

Fixpoint take_channels (g : nat) (held : list (option nat)) (cs : list channel)
  (chans : list (channel * nat)) : list (channel * nat) * list channel * option refusal :=
  match cs with
  | [] => (chans, [], None)
  | c :: r =>
      match holder_of c chans with
      | Some h => (chans, [], Some (ChannelShared c h g))
      | None =>
          match nth_error held (fst c) with
          | Some (Some h) =>
              if Nat.eqb h g then
                let '(chans', taken, e) := take_channels g held r ((c, g) :: chans) in
                (chans', c :: taken, e)
              else (chans, [], Some (ForeignChannel c g))
          | _ => (chans, [], Some (ForeignChannel c g))
          end
      end
  end.

(* A group takes sets; on refusal, what it took so far is recorded. *)
Definition hold (g : nat) (v : N) (x : sets) (k : checker) : checker * option refusal :=
  let '(held, ss, e) := take_sessions g (x_sessions x) (k_sessions k) in
  let '(chans, cs, e') :=
    match e with
    | Some _ => (k_channels k, [], e)
    | None => take_channels g held (x_channels x) (k_channels k)
    end in
  ({| k_marks := k_marks k; k_sessions := held; k_channels := chans;
      k_accepted := upd g (Some (v, {| x_sessions := ss; x_channels := cs |})) (k_accepted k);
      k_checks := k_checks k |}, e').

(* The sessions of a group, no two of them equal, are the machine's. *)
Fixpoint check_owners (g : nat) (ss owners : list nat) : option refusal :=
  match ss with
  | [] => None
  | s :: r =>
      match nth_error owners s with
      | Some h => if Nat.eqb h g then check_owners g r owners else Some (OtherSession s g (Some h))
      | None => Some (OtherSession s g None)
      end
  end.

Definition check_sessions (g : nat) (x : sets) (f : facts) : option refusal :=
  match check_owners g (x_sessions x) (a_sessions f) with
  | Some r => Some r
  | None =>
      let found := length (x_sessions x) in
      match nth_error (a_lanes f) g with
      | Some a => if Nat.eqb (f_sessions a) found then None
                  else Some (SessionCount g found (f_sessions a))
      | None => None
      end
  end.

Definition check_sent (g : nat) (o : option sets) (f : facts) : option refusal :=
  match o with Some x => check_sessions g x f | None => None end.

Fixpoint check_versions (g : nat) (claimed : N) (accepted : option N) (ls : list nat)
  (fl : list lane_facts) : option refusal :=
  match ls with
  | [] => None
  | l :: r =>
      match nth_error fl l with
      | None => Some (UnknownLane l (length fl))
      | Some f =>
          if N.eqb claimed (f_version f) &&
             match accepted with Some a => N.eqb a (f_version f) | None => false end
          then check_versions g claimed accepted r fl
          else Some (SetVersion g claimed (f_version f) accepted)
      end
  end.

Definition two64 : N := 18446744073709551616.

Definition digest_sum (ls : list nat) (fl : list lane_facts) : N :=
  fold_left (fun sum l =>
    match nth_error fl l with
    | Some f => N.modulo (sum + f_digest f) two64
    | None => sum
    end) ls 0%N.

Definition allowed_picks (s : span) (lanes : nat) : N :=
  match s with
  | Cycles _ => 0
  | Picks n => N.min (n * N.of_nat lanes) 4294967295
  end.

Fixpoint check_each_pick (g : nat) (k : checker) (ps : list pick) : option refusal :=
  match ps with
  | [] => None
  | p :: r =>
      match nth_error (k_marks k) (p_lane p) with
      | Some (n, h) =>
          if N.eqb n (k_checks k) && Nat.eqb h g then
            match nth_error (k_sessions k) (p_session p) with
            | Some (Some h') =>
                if Nat.eqb h' g then check_each_pick g k r
                else Some (PickSession g (p_session p))
            | _ => Some (PickSession g (p_session p))
            end
          else Some (PickLane g (p_lane p))
      | None => Some (PickLane g (p_lane p))
      end
  end.

Definition check_picks (g : nat) (m : claim) (s : span) (k : checker) : option refusal :=
  let allowed := allowed_picks s (length (m_lanes m)) in
  let found := N.of_nat (length (m_picks m)) in
  if N.ltb allowed found then Some (PickCount g found allowed)
  else check_each_pick g k (m_picks m).

Definition check_claim (m : claim) (s : span) (f : facts) (k : checker)
  : checker * option refusal :=
  let g := first_lane m in
  let '(k1, e) := match m_sets m with
                  | Some x => hold g (m_version m) x k
                  | None => (k, None)
                  end in
  match e with
  | Some r => (k1, Some r)
  | None =>
      match check_sent g (m_sets m) f with
      | Some r => (k1, Some r)
      | None =>
          match check_versions g (m_version m) (option_map fst (accepted_at k1 g))
                  (m_lanes m) (a_lanes f) with
          | Some r => (k1, Some r)
          | None =>
              let actual := digest_sum (m_lanes m) (a_lanes f) in
              if N.eqb (m_digest m) actual then (k1, check_picks g m s k1)
              else (k1, Some (ReadySet g (m_digest m) actual))
          end
      end
  end.

Fixpoint check_claims (ms : list claim) (s : span) (f : facts) (k : checker)
  : checker * option refusal :=
  match ms with
  | [] => (k, None)
  | m :: r =>
      match check_claim m s f k with
      | (k', None) => check_claims r s f k'
      | (k', Some e) => (k', Some e)
      end
  end.

Definition changed_groups (ms : list claim) : list nat :=
  map first_lane (filter (fun m => match m_sets m with Some _ => true | None => false end) ms).

Definition restore (k : checker) (b : nat * option (N * sets)) : checker :=
  match snd b with
  | None => k
  | Some (v, x) => fst (hold (fst b) v x k)
  end.

Definition span_eqb (a b : span) : bool :=
  match a, b with
  | Cycles m, Cycles n => N.eqb m n
  | Picks m, Picks n => N.eqb m n
  | _, _ => false
  end.

Lemma span_eqb_eq a b : span_eqb a b = true -> a = b.
Proof. destruct a, b; simpl; intros H; try discriminate; apply N.eqb_eq in H; congruence. Qed.

Definition release_all (gs : list nat) (k : checker) : checker :=
  fold_left (fun k g => release g k) gs k.

Definition check (t : certificate) (f : facts) (k : checker) : checker * option refusal :=
  if negb (N.eqb (t_wave t) (a_wave f)) then (k, Some (BadWave (t_wave t) (a_wave f)))
  else if negb (span_eqb (t_span t) (a_span f)) then (k, Some (BadSpan (t_span t) (a_span f)))
  else
    let n := N.succ (k_checks k) in
    let with_marks marks :=
      {| k_marks := marks; k_sessions := k_sessions k; k_channels := k_channels k;
         k_accepted := k_accepted k; k_checks := n |} in
    match mark_claims n 0 (t_claims t) (k_marks k) with
    | inr e => (with_marks (k_marks k), Some e)
    | inl marks =>
        let k1 := with_marks marks in
        match check_groups n marks 0 marks (a_lanes f) with
        | Some e => (k1, Some e)
        | None =>
            let gs := changed_groups (t_claims t) in
            let before := map (fun g => (g, accepted_at k1 g)) gs in
            match check_claims (t_claims t) (t_span t) f (release_all gs k1) with
            | (k2, None) => (k2, None)
            | (k2, Some e) => (fold_left restore before (release_all gs k2), Some e)
            end
        end
    end.

(* ---- Soundness ---- *)

(* What the checker holds is disjoint, and the holder tables say so. *)
Definition invariant (k : checker) : Prop :=
  length (k_marks k) = length (k_accepted k) /\
  Forall (fun m => (fst m <= k_checks k)%N) (k_marks k) /\
  (forall g v x, accepted_at k g = Some (v, x) ->
     NoDup (x_sessions x) /\ NoDup (x_channels x) /\
     (forall s, In s (x_sessions x) -> nth_error (k_sessions k) s = Some (Some g)) /\
     (forall c, In c (x_channels x) ->
        holder_of c (k_channels k) = Some g /\ In (fst c) (x_sessions x))) /\
  (forall s g, nth_error (k_sessions k) s = Some (Some g) ->
     exists v x, accepted_at k g = Some (v, x) /\ In s (x_sessions x)) /\
  (forall c g, holder_of c (k_channels k) = Some g ->
     exists v x, accepted_at k g = Some (v, x) /\ In c (x_channels x)).

Lemma nth_repeat {A} (a : A) n i x : nth_error (repeat a n) i = Some x -> x = a.
Proof. revert i; induction n; destruct i; simpl; intros; try discriminate; [congruence|eauto]. Qed.

Theorem new_checker_invariant lanes sessions : invariant (new_checker lanes sessions).
Proof.
  unfold invariant, new_checker, accepted_at; simpl. split; [|split; [|split; [|split]]]; [| | |
      |discriminate].
  - rewrite !repeat_length. auto.
  - apply Forall_forall. intros m Hm. apply repeat_spec in Hm. subst. simpl. lia.
  - intros g v x H. destruct (nth_error (repeat None lanes) g) eqn:E; try discriminate.
    apply nth_repeat in E. congruence.
  - intros s g H. apply nth_repeat in H. discriminate.
Qed.

Lemma nth_upd_eq {A} i (x : A) l : i < length l -> nth_error (upd i x l) i = Some x.
Proof.
  intros H. rewrite nth_upd, Nat.eqb_refl.
  destruct (nth_error l i) eqn:E; auto. apply nth_error_None in E. lia.
Qed.

Lemma nth_upd_ne {A} i j (x : A) l : i <> j -> nth_error (upd i x l) j = nth_error l j.
Proof. intros H. rewrite nth_upd. destruct (Nat.eqb_spec i j); congruence. Qed.

Lemma fold_upd_none ss : forall (l : list (option nat)) s,
  nth_error (fold_left (fun l s => upd s None l) ss l) s =
  if in_dec Nat.eq_dec s ss then option_map (fun _ => None) (nth_error l s) else nth_error l s.
Proof.
  induction ss as [|a ss IH]; intros l s; simpl; auto.
  rewrite IH, nth_upd.
  destruct (Nat.eq_dec a s) as [->|Hne].
  - rewrite Nat.eqb_refl. destruct (in_dec Nat.eq_dec s ss);
      destruct (nth_error l s); auto.
  - destruct (Nat.eqb_spec a s); [congruence|].
    destruct (in_dec Nat.eq_dec s ss); auto.
Qed.

Lemma holder_drop c d l : c <> d -> holder_of c (drop_channel d l) = holder_of c l.
Proof.
  intros Hne. induction l as [|[e g] l IH]; simpl; auto.
  destruct (channel_eqb_spec d e) as [->|Hde]; simpl.
  - destruct (channel_eqb_spec c e); [congruence|auto].
  - destruct (channel_eqb_spec c e); auto.
Qed.

Lemma fold_drop cs : forall c l, ~ In c cs ->
  holder_of c (fold_left (fun l c => drop_channel c l) cs l) = holder_of c l.
Proof.
  induction cs as [|d cs IH]; intros c l H; simpl; auto.
  rewrite IH, holder_drop; auto.
  - intros ->. apply H. left; auto.
  - intros Hin. apply H. right; auto.
Qed.

Lemma holder_drop_same c l : holder_of c (drop_channel c l) = None.
Proof.
  induction l as [|[e g] l IH]; simpl; auto.
  destruct (channel_eqb_spec c e) as [->|Hne]; simpl; auto.
  destruct (channel_eqb_spec c e); [congruence|auto].
Qed.

Lemma fold_drop_none cs : forall c l, holder_of c l = None ->
  holder_of c (fold_left (fun l c => drop_channel c l) cs l) = None.
Proof.
  induction cs as [|d cs IH]; intros c l H; simpl; auto.
  apply IH. destruct (channel_eqb_spec c d) as [->|Hne].
  - apply holder_drop_same.
  - rewrite holder_drop; auto.
Qed.

Lemma fold_drop_in cs : forall c l, In c cs ->
  holder_of c (fold_left (fun l c => drop_channel c l) cs l) = None.
Proof.
  induction cs as [|d cs IH]; intros c l H; simpl; [destruct H|].
  destruct H as [->|H]; auto. apply fold_drop_none. apply holder_drop_same.
Qed.

Lemma accepted_upd k g h a :
  accepted_at {| k_marks := k_marks k; k_sessions := k_sessions k;
                 k_channels := k_channels k; k_accepted := upd g a (k_accepted k);
                 k_checks := k_checks k |} h =
  if Nat.eqb g h then match nth_error (k_accepted k) h with Some _ => a | None => None end
  else accepted_at k h.
Proof.
  unfold accepted_at; simpl. rewrite nth_upd.
  destruct (Nat.eqb g h); auto. destruct (nth_error (k_accepted k) h); auto.
Qed.

Lemma release_accepted g h k :
  accepted_at (release g k) h = if Nat.eqb g h then None else accepted_at k h.
Proof.
  unfold release. destruct (accepted_at k g) as [[v x]|] eqn:E.
  - unfold accepted_at; simpl. rewrite nth_upd.
    destruct (Nat.eqb_spec g h) as [->|]; auto.
    destruct (nth_error (k_accepted k) h); auto.
  - destruct (Nat.eqb_spec g h) as [->|]; auto.
Qed.

Lemma release_marks g k : k_marks (release g k) = k_marks k /\ k_checks (release g k) = k_checks k
  /\ length (k_accepted (release g k)) = length (k_accepted k)
  /\ length (k_sessions (release g k)) = length (k_sessions k).
Proof.
  unfold release. destruct (accepted_at k g) as [[v x]|]; simpl; auto.
  rewrite upd_length. repeat split; auto.
  generalize (k_sessions k). induction (x_sessions x) as [|a l IH]; simpl; auto.
  intros h. rewrite IH, upd_length. auto.
Qed.

Lemma release_invariant g k : invariant k -> invariant (release g k).
Proof.
  intros (Hl & Hm & Ha & Hb & Hd).
  destruct (release_marks g k) as (R1 & R2 & R3 & _).
  unfold invariant. rewrite R1, R2, R3.
  split; [|split; [|split; [|split]]]; auto.
  - intros h v x H. rewrite release_accepted in H.
    destruct (Nat.eqb_spec g h) as [->|Hne]; try discriminate.
    destruct (Ha h v x H) as (N1 & N2 & S & C).
    split; [|split; [|split]]; auto; unfold release;
      destruct (accepted_at k g) as [[w y]|] eqn:E; auto; simpl.
    + intros s Hs. rewrite fold_upd_none.
      destruct (in_dec Nat.eq_dec s (x_sessions y)) as [Hy|]; auto.
      destruct (Ha g w y E) as (_ & _ & S' & _).
      apply S' in Hy. rewrite S in Hy; auto. congruence.
    + intros c Hc. destruct (C c Hc) as [C1 C2]. split; auto.
      rewrite fold_drop; auto. intros Hy.
      destruct (Ha g w y E) as (_ & _ & _ & C').
      destruct (C' c Hy) as [C3 _]. congruence.
  - intros s h H. rewrite release_accepted.
    unfold release in H. destruct (accepted_at k g) as [[w y]|] eqn:E.
    + simpl in H. rewrite fold_upd_none in H.
      destruct (in_dec Nat.eq_dec s (x_sessions y)) as [Hy|Hy].
      * destruct (nth_error (k_sessions k) s); discriminate.
      * destruct (Hb s h H) as (v & x & Hx & Hin).
        destruct (Nat.eqb_spec g h) as [->|]; eauto.
        rewrite E in Hx. injection Hx as <- <-. contradiction.
    + destruct (Hb s h H) as (v & x & Hx & Hin).
      destruct (Nat.eqb_spec g h) as [->|]; eauto. congruence.
  - intros c h H. rewrite release_accepted.
    unfold release in H. destruct (accepted_at k g) as [[w y]|] eqn:E.
    + simpl in H.
      assert (Hdec : forall a b : channel, {a = b} + {a <> b}) by (repeat decide equality).
      destruct (in_dec Hdec c (x_channels y)) as [Hy|Hy].
      * rewrite fold_drop_in in H; auto. discriminate.
      * rewrite fold_drop in H; auto. destruct (Hd c h H) as (v & x & Hx & Hin).
        destruct (Nat.eqb_spec g h) as [->|]; eauto.
        rewrite E in Hx. injection Hx as <- <-. contradiction.
    + destruct (Hd c h H) as (v & x & Hx & Hin).
      destruct (Nat.eqb_spec g h) as [->|]; eauto. congruence.
Qed.

Local Ltac trivial_parts :=
  repeat split; auto using NoDup_nil; try discriminate; simpl in *; try tauto;
  try contradiction.

Lemma take_sessions_spec g ss : forall held held' taken e,
  take_sessions g ss held = (held', taken, e) ->
  NoDup taken /\ length held' = length held /\
  (forall s, In s taken -> nth_error held s = Some None) /\
  (forall s, nth_error held' s =
     if in_dec Nat.eq_dec s taken then Some (Some g) else nth_error held s) /\
  (e = None -> taken = ss).
Proof.
  induction ss as [|a ss IH]; intros held held' taken e H; simpl in H.
  - injection H as <- <- <-. trivial_parts.
  - destruct (nth_error held a) as [[h|]|] eqn:E.
    + injection H as <- <- <-. trivial_parts.
    + destruct (take_sessions g ss (upd a (Some g) held)) as [[h2 t2] e2] eqn:Et.
      injection H as <- <- <-.
      destruct (IH _ _ _ _ Et) as (D & L & A & B & C).
      assert (Ha : a < length held) by (apply nth_error_Some; congruence).
      split; [|split; [|split; [|split]]].
      * constructor; auto. intros Hin. apply A in Hin.
        rewrite nth_upd_eq in Hin; auto. discriminate.
      * rewrite L, upd_length. auto.
      * intros s [<-|Hs]; auto.
        apply A in Hs. rewrite nth_upd in Hs.
        destruct (Nat.eqb_spec a s) as [Heq|]; [rewrite <- Heq|]; auto.
      * intros s. rewrite B. simpl.
        destruct (in_dec Nat.eq_dec s t2) as [Hi|Hi];
          destruct (Nat.eq_dec a s) as [<-|Hne]; auto.
        -- apply nth_upd_eq; auto.
        -- apply nth_upd_ne; auto.
      * intros He. f_equal. auto.
    + injection H as <- <- <-. trivial_parts.
Qed.

Lemma take_channels_spec g held cs : forall chans chans' taken e,
  take_channels g held cs chans = (chans', taken, e) ->
  NoDup taken /\
  (forall c, In c taken -> holder_of c chans = None /\ nth_error held (fst c) = Some (Some g)) /\
  (forall c, In c taken -> holder_of c chans' = Some g) /\
  (forall c h, holder_of c chans = Some h -> holder_of c chans' = Some h) /\
  (e = None -> taken = cs) /\
  (forall c h, holder_of c chans' = Some h -> holder_of c chans = Some h \/ (h = g /\ In c taken)).
Proof.
  induction cs as [|a cs IH]; intros chans chans' taken e H; simpl in H.
  - injection H as <- <- <-. trivial_parts.
  - assert (Hfail : forall r, (chans, @nil channel, Some r) = (chans', taken, e) ->
      NoDup taken /\
      (forall c, In c taken -> holder_of c chans = None /\ nth_error held (fst c) = Some (Some g))
          /\
      (forall c, In c taken -> holder_of c chans' = Some g) /\
      (forall c h, holder_of c chans = Some h -> holder_of c chans' = Some h) /\
      (e = None -> taken = a :: cs) /\
      (forall c h, holder_of c chans' = Some h ->
         holder_of c chans = Some h \/ (h = g /\ In c taken))).
    { intros r Hr. injection Hr as <- <- <-.
      trivial_parts. }
    destruct (holder_of a chans) as [h|] eqn:E; [eauto|].
    destruct (nth_error held (fst a)) as [[h|]|] eqn:Eh; eauto.
    destruct (Nat.eqb_spec h g) as [->|]; eauto.
    destruct (take_channels g held cs ((a, g) :: chans)) as [[h2 t2] e2] eqn:Et.
    injection H as <- <- <-.
    destruct (IH _ _ _ _ Et) as (D & A & B & M & C & X).
    assert (Hcons : forall c, holder_of c ((a, g) :: chans) =
              if channel_eqb c a then Some g else holder_of c chans) by auto.
    split; [|split; [|split; [|split; [|split]]]].
    + constructor; auto. intros Hin. apply A in Hin. destruct Hin as [Hin _].
      rewrite Hcons in Hin. destruct (channel_eqb_spec a a); congruence.
    + intros c [<-|Hc]; auto.
      apply A in Hc. destruct Hc as [Hc Hc']. split; auto.
      rewrite Hcons in Hc. destruct (channel_eqb c a); congruence.
    + intros c [<-|Hc]; auto.
      apply M. rewrite Hcons. destruct (channel_eqb_spec a a); congruence.
    + intros c h Hh. apply M. rewrite Hcons.
      destruct (channel_eqb_spec c a) as [->|]; congruence.
    + intros He. f_equal. auto.
    + intros c h Hh. apply X in Hh. rewrite Hcons in Hh.
      destruct (channel_eqb_spec c a) as [->|]; simpl; [|intuition].
      destruct Hh as [Hh|Hh]; [|intuition]. injection Hh as ->. auto.
Qed.

Lemma hold_facts g v x k k' e :
  hold g v x k = (k', e) ->
  k_marks k' = k_marks k /\ k_checks k' = k_checks k /\
  length (k_accepted k') = length (k_accepted k) /\
  (forall h, h <> g -> accepted_at k' h = accepted_at k h) /\
  (e = None -> g < length (k_accepted k) -> accepted_at k' g = Some (v, x)).
Proof.
  unfold hold. intros H.
  destruct (take_sessions g (x_sessions x) (k_sessions k)) as [[held ss] e1] eqn:E1.
  apply take_sessions_spec in E1. destruct E1 as (_ & _ & _ & _ & Hss).
  destruct (match e1 with Some _ => _ | None => _ end) as [[chans cs] e2] eqn:E2.
  injection H as <- <-. simpl. rewrite upd_length. repeat split; auto.
  - intros h Hne. unfold accepted_at; simpl. rewrite nth_upd_ne; auto.
  - intros -> Hg. unfold accepted_at; simpl. rewrite nth_upd_eq; auto.
    destruct e1 as [r|]; [discriminate|].
    apply take_channels_spec in E2. destruct E2 as (_ & _ & _ & _ & Hcs & _).
    rewrite Hss, Hcs; auto. destruct x; auto.
Qed.

Lemma hold_invariant g v x k k' e :
  invariant k -> accepted_at k g = None -> g < length (k_accepted k) ->
  hold g v x k = (k', e) -> invariant k'.
Proof.
  intros (Hl & Hm & Ha & Hb & Hd) Hnone Hg H.
  destruct (hold_facts _ _ _ _ _ _ H) as (F1 & F2 & F3 & F4 & _).
  unfold invariant. rewrite F1, F2, F3. split; [|split]; auto.
  unfold hold in H.
  destruct (take_sessions g (x_sessions x) (k_sessions k)) as [[held ss] e1] eqn:E1.
  apply take_sessions_spec in E1. destruct E1 as (SD & SL & SA & SB & _).
  destruct (match e1 with Some _ => _ | None => _ end) as [[chans cs] e2] eqn:E2.
  injection H as <- <-. simpl in *.
  assert (HC : NoDup cs /\
    (forall c, In c cs -> holder_of c (k_channels k) = None /\
                          nth_error held (fst c) = Some (Some g)) /\
    (forall c, In c cs -> holder_of c chans = Some g) /\
    (forall c h, holder_of c (k_channels k) = Some h -> holder_of c chans = Some h) /\
    (forall c h, holder_of c chans = Some h ->
       holder_of c (k_channels k) = Some h \/ (h = g /\ In c cs))).
  { destruct e1 as [r|].
    - injection E2 as <- <- <-. trivial_parts.
    - apply take_channels_spec in E2. tauto. }
  destruct HC as (CD & CA & CB & CM & CX).
  assert (Hnew : forall h, accepted_at {| k_marks := k_marks k; k_sessions := held;
      k_channels := chans;
      k_accepted := upd g (Some (v, {| x_sessions := ss; x_channels := cs |})) (k_accepted k);
      k_checks := k_checks k |} h =
      if Nat.eqb g h then Some (v, {| x_sessions := ss; x_channels := cs |})
      else accepted_at k h).
  { intros h. unfold accepted_at; simpl. destruct (Nat.eqb_spec g h) as [<-|Hne].
    - rewrite nth_upd_eq; auto.
    - rewrite nth_upd_ne; auto. }
  split; [|split].
  - intros h w y Hy. rewrite Hnew in Hy.
    destruct (Nat.eqb_spec g h) as [<-|Hne].
    + injection Hy as <- <-. simpl. split; [|split; [|split]]; auto.
      * intros s Hs. rewrite SB.
        destruct (in_dec Nat.eq_dec s ss); [auto|contradiction].
      * intros c Hc. split; auto. apply CA in Hc. destruct Hc as [_ Hc].
        rewrite SB in Hc. destruct (in_dec Nat.eq_dec (fst c) ss); auto.
        destruct (Hb _ _ Hc) as (? & ? & Hacc & _). congruence.
    + destruct (Ha h w y Hy) as (N1 & N2 & S & C).
      split; [|split; [|split]]; auto.
      * intros s Hs. rewrite SB. destruct (in_dec Nat.eq_dec s ss) as [Hi|]; auto.
        apply SA in Hi. apply S in Hs. congruence.
      * intros c Hc. destruct (C c Hc). split; auto.
  - intros s h Hs. rewrite Hnew. rewrite SB in Hs.
    destruct (in_dec Nat.eq_dec s ss) as [Hi|Hi].
    + injection Hs as <-. rewrite Nat.eqb_refl. eauto.
    + destruct (Hb s h Hs) as (w & y & Hy & Hin).
      destruct (Nat.eqb_spec g h) as [<-|]; eauto. congruence.
  - intros c h Hc. rewrite Hnew. apply CX in Hc. destruct Hc as [Hc|[-> Hc]].
    + destruct (Hd c h Hc) as (w & y & Hy & Hin).
      destruct (Nat.eqb_spec g h) as [<-|]; eauto. congruence.
    + rewrite Nat.eqb_refl. eauto.
Qed.

(* Marks: an accepted certificate's lanes are pairwise different and exist. *)
Lemma mark_lanes_spec n g ls : forall marks marks',
  mark_lanes n g ls marks = inl marks' ->
  length marks' = length marks /\
  NoDup ls /\
  (forall l, In l ls -> l < length marks /\ (forall h, nth_error marks l <> Some (n, h))) /\
  (forall l, nth_error marks' l =
     if in_dec Nat.eq_dec l ls then Some (n, g) else nth_error marks l).
Proof.
  induction ls as [|a ls IH]; intros marks marks' H; simpl in H.
  - injection H as <-. split; [auto|]. split; [constructor|]. split; [simpl; tauto|auto].
  - destruct (nth_error marks a) as [[m h]|] eqn:E; try discriminate.
    destruct (N.eqb_spec m n) as [->|Hmn]; try discriminate.
    assert (Ha : a < length marks) by (apply nth_error_Some; congruence).
    destruct (IH _ _ H) as (L & D & A & B).
    rewrite upd_length in L.
    split; [|split; [|split]]; auto.
    + constructor; auto. intros Hin. apply A in Hin. destruct Hin as [_ Hin].
      apply (Hin g). apply nth_upd_eq; auto.
    + intros l [<-|Hin].
      * split; auto. intros h' Hh. rewrite E in Hh. congruence.
      * destruct (A l Hin) as [A1 A2]. rewrite upd_length in A1. split; auto.
        intros h' Hh. destruct (Nat.eq_dec a l) as [<-|Hne].
        -- apply (A2 g). apply nth_upd_eq; auto.
        -- apply (A2 h'). rewrite nth_upd_ne; auto.
    + intros l. rewrite B. simpl.
      destruct (in_dec Nat.eq_dec l ls); destruct (Nat.eq_dec a l) as [<-|Hne]; auto.
      * apply nth_upd_eq; auto.
      * apply nth_upd_ne; auto.
Qed.

Lemma mark_claims_spec n ms : forall at_ marks marks',
  mark_claims n at_ ms marks = inl marks' ->
  length marks' = length marks /\
  NoDup (flat_map m_lanes ms) /\
  (forall m, In m ms -> m_lanes m <> []) /\
  (forall l, In l (flat_map m_lanes ms) -> l < length marks /\
     (forall h, nth_error marks l <> Some (n, h))) /\
  (forall l, ~ In l (flat_map m_lanes ms) -> nth_error marks' l = nth_error marks l) /\
  (forall m l, In m ms -> In l (m_lanes m) -> nth_error marks' l = Some (n, first_lane m)).
Proof.
  induction ms as [|m ms IH]; intros at_ marks marks' H; simpl in H.
  - injection H as <-. split; [auto|]. split; [constructor|]. simpl. split; [tauto|].
    split; [tauto|]. split; [auto|tauto].
  - destruct (m_lanes m) as [|g rest] eqn:Em; try discriminate.
    destruct (mark_lanes n g (g :: rest) marks) as [marks1|] eqn:E1; try discriminate.
    destruct (mark_lanes_spec _ _ _ _ _ E1) as (L1 & D1 & A1 & B1).
    destruct (IH _ _ _ H) as (L2 & D2 & N2 & A2 & B2 & C2).
    cbn [flat_map]. rewrite Em.
    assert (Hsep : forall l, In l (g :: rest) -> ~ In l (flat_map m_lanes ms)).
    { intros l Hl Hin. destruct (A2 l Hin) as [_ A3]. apply (A3 g).
      rewrite B1. destruct (in_dec Nat.eq_dec l (g :: rest)); [auto|contradiction]. }
    split; [congruence|]. split; [|split; [|split; [|split]]].
    + clear - D1 D2 Hsep. induction (g :: rest) as [|a l IHl]; simpl; auto.
      inversion D1; subst. constructor.
      * intros Hin. apply in_app_or in Hin. destruct Hin; auto. apply (Hsep a); simpl; auto.
      * apply IHl; auto. intros b Hb. apply Hsep. right; auto.
    + intros m' [<-|Hm']; auto. congruence.
    + intros l Hl. apply in_app_or in Hl. destruct Hl as [Hl|Hl]; auto.
      destruct (A2 l Hl) as [A3 A4]. split; [lia|].
      intros h Hh. apply (A4 h). rewrite B1.
      destruct (in_dec Nat.eq_dec l (g :: rest)) as [Hi|]; auto.
      exfalso. apply (Hsep l); auto.
    + intros l Hl. rewrite B2, B1.
      * destruct (in_dec Nat.eq_dec l (g :: rest)) as [Hi|]; auto.
        exfalso. apply Hl. apply in_or_app. auto.
      * intros Hin. apply Hl. apply in_or_app. auto.
    + intros m' l [<-|Hm'] Hl; auto.
      rewrite Em in Hl. rewrite B2; auto.
      rewrite B1. destruct (in_dec Nat.eq_dec l (g :: rest)); [|contradiction].
      unfold first_lane. rewrite Em. auto.
Qed.

Lemma check_groups_spec n all : forall marks l fl,
  check_groups n all l marks fl = None ->
  forall i m h f, nth_error marks i = Some (m, h) -> nth_error fl i = Some f ->
    (m = n -> h = f_group f) /\
    (m <> n -> is_claimed n all (f_group f) = false /\ f_work f = false).
Proof.
  induction marks as [|[m0 h0] marks IH]; intros l fl H i m h f Hm Hf.
  - destruct i; discriminate.
  - destruct fl as [|f0 fl]; [destruct i; discriminate|]. simpl in H.
    destruct (N.eqb_spec m0 n) as [->|Hne].
    + destruct (Nat.eqb_spec h0 (f_group f0)) as [->|]; [|discriminate].
      destruct i; simpl in Hm, Hf; [|eauto].
      injection Hm as <- <-. injection Hf as <-. split; congruence.
    + destruct (is_claimed n all (f_group f0)) eqn:Ec; [discriminate|].
      destruct (f_work f0) eqn:Ew; [discriminate|].
      destruct i; simpl in Hm, Hf; [|eauto].
      injection Hm as <- <-. injection Hf as <-. split; [congruence|auto].
Qed.

(* What is sent is the machine's. *)
Definition own_sets (f : facts) (g : nat) (x : sets) : Prop :=
  (forall s, In s (x_sessions x) -> nth_error (a_sessions f) s = Some g) /\
  (forall a, nth_error (a_lanes f) g = Some a -> length (x_sessions x) = f_sessions a).

Lemma check_sessions_spec g x f : check_sessions g x f = None -> own_sets f g x.
Proof.
  unfold check_sessions. intros H.
  destruct (check_owners g (x_sessions x) (a_sessions f)) as [r|] eqn:E; [discriminate|].
  split.
  - clear H. revert E. induction (x_sessions x) as [|s ss IH]; simpl; intros E t Ht; [tauto|].
    destruct (nth_error (a_sessions f) s) as [h|] eqn:Es; [|discriminate].
    destruct (Nat.eqb_spec h g) as [->|]; [|discriminate].
    destruct Ht as [<-|Ht]; auto.
  - intros a Ha. rewrite Ha in H.
    destruct (Nat.eqb_spec (f_sessions a) (length (x_sessions x))); [auto|discriminate].
Qed.

Lemma check_sent_spec g o f : check_sent g o f = None ->
  forall x, o = Some x -> own_sets f g x.
Proof. intros H x ->. apply check_sessions_spec. exact H. Qed.

Lemma check_versions_spec g v acc ls fl :
  check_versions g v acc ls fl = None ->
  forall l, In l ls -> exists f, nth_error fl l = Some f /\ f_version f = v /\ acc = Some v.
Proof.
  induction ls as [|a ls IH]; simpl; intros H l Hl; [tauto|].
  destruct (nth_error fl a) as [f|] eqn:E; try discriminate.
  destruct (N.eqb_spec v (f_version f)) as [Hv|]; simpl in H; try discriminate.
  destruct acc as [w|]; try discriminate.
  destruct (N.eqb_spec w (f_version f)) as [Hw|]; try discriminate.
  destruct Hl as [<-|Hl]; auto.
  exists f. repeat split; auto. congruence.
Qed.

Lemma check_each_pick_spec g k ps :
  check_each_pick g k ps = None -> forall p, In p ps ->
  nth_error (k_marks k) (p_lane p) = Some (k_checks k, g) /\
  nth_error (k_sessions k) (p_session p) = Some (Some g).
Proof.
  induction ps as [|q ps IH]; simpl; intros H p Hp; [tauto|].
  destruct (nth_error (k_marks k) (p_lane q)) as [[n h]|] eqn:E1; try discriminate.
  destruct (N.eqb_spec n (k_checks k)) as [->|]; simpl in H; try discriminate.
  destruct (Nat.eqb_spec h g) as [->|]; simpl in H; try discriminate.
  destruct (nth_error (k_sessions k) (p_session q)) as [[h'|]|] eqn:E2; try discriminate.
  destruct (Nat.eqb_spec h' g) as [->|]; try discriminate.
  destruct Hp as [<-|Hp]; auto.
Qed.

(* What the checker granted a claim: the sets it holds for the claim's first lane. *)
Definition granted (k : checker) (m : claim) : option (N * sets) := accepted_at k (first_lane m).

Definition claim_ok (f : facts) (s : span) (k : checker) (m : claim) : Prop :=
  (exists x, granted k m = Some (m_version m, x) /\
     (forall y, m_sets m = Some y -> x = y) /\
     (forall p, In p (m_picks m) -> In (p_session p) (x_sessions x))) /\
  (forall l, In l (m_lanes m) -> exists a, nth_error (a_lanes f) l = Some a /\
     f_version a = m_version m) /\
  m_digest m = digest_sum (m_lanes m) (a_lanes f) /\
  (N.of_nat (length (m_picks m)) <= allowed_picks s (length (m_lanes m)))%N /\
  (forall p, In p (m_picks m) ->
     nth_error (k_marks k) (p_lane p) = Some (k_checks k, first_lane m)) /\
  (forall y, m_sets m = Some y -> own_sets f (first_lane m) y).

Lemma claim_ok_same f s k k' m :
  granted k' m = granted k m -> k_marks k' = k_marks k -> k_checks k' = k_checks k ->
  claim_ok f s k m -> claim_ok f s k' m.
Proof.
  intros H1 H2 H3 (A & B & C & D & E). unfold claim_ok. rewrite H1, H2, H3. auto.
Qed.

Lemma check_claim_spec m s f k k' :
  invariant k ->
  m_lanes m <> [] -> first_lane m < length (k_accepted k) ->
  (m_sets m <> None -> accepted_at k (first_lane m) = None) ->
  check_claim m s f k = (k', None) ->
  invariant k' /\ claim_ok f s k' m /\
  k_marks k' = k_marks k /\ k_checks k' = k_checks k /\
  length (k_accepted k') = length (k_accepted k) /\
  (forall h, h <> first_lane m -> accepted_at k' h = accepted_at k h).
Proof.
  intros Hinv Hne Hg Hfree H. unfold check_claim in H.
  destruct (match m_sets m with Some x => _ | None => _ end) as [k1 e1] eqn:E1.
  destruct e1 as [r|]; [discriminate|].
  destruct (check_sent _ _ _) as [r|] eqn:Eo; [discriminate|].
  assert (Ho := check_sent_spec _ _ _ Eo).
  assert (K : invariant k1 /\ k_marks k1 = k_marks k /\ k_checks k1 = k_checks k /\
     length (k_accepted k1) = length (k_accepted k) /\
     (forall h, h <> first_lane m -> accepted_at k1 h = accepted_at k h) /\
     (forall y, m_sets m = Some y ->
        accepted_at k1 (first_lane m) = Some (m_version m, y))).
  { destruct (m_sets m) as [x|] eqn:Ex.
    - destruct (hold_facts _ _ _ _ _ _ E1) as (F1 & F2 & F3 & F4 & F5).
      split; [eapply hold_invariant; eauto; apply Hfree; discriminate|].
      do 4 (split; [assumption|]).
      intros y Hy. injection Hy as <-. auto.
    - injection E1 as <-. do 5 (split; [auto|]). discriminate. }
  destruct K as (Kinv & Km & Kc & Kl & Kh & Ks).
  destruct (check_versions _ _ _ _ _) as [r|] eqn:Ev; [discriminate|].
  destruct (N.eqb_spec (m_digest m) (digest_sum (m_lanes m) (a_lanes f))) as [Hd|];
    [|discriminate].
  injection H as <- Hp.
  assert (Hv := check_versions_spec _ _ _ _ _ Ev).
  split; auto. split; [|auto].
  unfold check_picks in Hp.
  destruct (N.ltb_spec (allowed_picks s (length (m_lanes m)))
                       (N.of_nat (length (m_picks m)))) as [|Hcount]; [discriminate|].
  assert (Hpk := check_each_pick_spec _ _ _ Hp).
  unfold claim_ok, granted. split; [|split; [|split; [|split; [|split]]]]; auto.
  - destruct (m_lanes m) as [|l0 rest] eqn:El; [congruence|].
    destruct (Hv l0 (or_introl eq_refl)) as (a & _ & _ & Hacc).
    destruct (accepted_at k1 (first_lane m)) as [[v x]|] eqn:Ea; [|discriminate].
    simpl in Hacc. injection Hacc as ->. exists x. split; [auto|split].
    + intros y Hy. apply Ks in Hy. congruence.
    + intros p Hin. destruct (Hpk p Hin) as [_ Hs].
      destruct Kinv as (_ & _ & _ & Kb & _). destruct (Kb _ _ Hs) as (w & y & Hy & Hiny).
      congruence.
  - intros l Hl. destruct (Hv l Hl) as (a & A1 & A2 & _). eauto.
  - intros p Hin. apply Hpk; auto.
Qed.

Lemma first_lane_in m : m_lanes m <> [] -> In (first_lane m) (m_lanes m).
Proof. unfold first_lane. destruct (m_lanes m); simpl; auto. Qed.

Lemma check_claims_spec ms s f : forall k k',
  invariant k ->
  NoDup (flat_map m_lanes ms) ->
  (forall m, In m ms -> m_lanes m <> []) ->
  (forall m, In m ms -> first_lane m < length (k_accepted k)) ->
  (forall m, In m ms -> m_sets m <> None -> accepted_at k (first_lane m) = None) ->
  check_claims ms s f k = (k', None) ->
  invariant k' /\ (forall m, In m ms -> claim_ok f s k' m) /\
  k_marks k' = k_marks k /\ k_checks k' = k_checks k /\
  (forall h, ~ In h (flat_map m_lanes ms) -> accepted_at k' h = accepted_at k h) /\
  length (k_accepted k') = length (k_accepted k).
Proof.
  induction ms as [|m ms IH]; intros k k' Hinv Hnd Hne Hlen Hfree H; simpl in H.
  - injection H as <-. split; auto. split; [simpl; tauto|auto].
  - destruct (check_claim m s f k) as [k1 e1] eqn:E1.
    destruct e1 as [r|]; [discriminate|].
    cbn [flat_map] in Hnd.
    assert (Hm := first_lane_in m (Hne m (or_introl eq_refl))).
    assert (Hsep : forall l, In l (m_lanes m) -> ~ In l (flat_map m_lanes ms)).
    { clear - Hnd. intros l Hl Hin. induction (m_lanes m) as [|a r IHr]; simpl in *; [tauto|].
      inversion Hnd; subst. destruct Hl as [->|Hl]; auto.
      apply H1. apply in_or_app. auto. }
    assert (Hnd2 : NoDup (flat_map m_lanes ms)).
    { clear - Hnd. induction (m_lanes m); simpl in *; auto. inversion Hnd; auto. }
    destruct (check_claim_spec m s f k k1) as (I1 & O1 & M1 & C1 & L1 & A1); auto.
    { apply Hne. left; auto. } { apply Hlen. left; auto. } { apply Hfree. left; auto. }
    assert (Hother : forall m', In m' ms -> first_lane m' <> first_lane m).
    { intros m' Hm' Heq. apply (Hsep (first_lane m)); auto.
      apply in_flat_map. exists m'. split; auto. rewrite <- Heq.
      apply first_lane_in. apply Hne. right; auto. }
    destruct (IH k1 k') as (I2 & O2 & M2 & C2 & A2 & L2); auto.
    { intros m' Hm'. apply Hne. right; auto. }
    { intros m' Hm'. rewrite L1. apply Hlen. right; auto. }
    { intros m' Hm' Hs. rewrite A1; auto. apply Hfree; auto. right; auto. }
    split; auto. split; [|split; [congruence|split; [congruence|split; [|congruence]]]].
    + intros m' [<-|Hm']; auto.
      apply claim_ok_same with k1; auto; try congruence.
      unfold granted. apply A2. apply Hsep. auto.
    + intros h Hh. rewrite A2.
      * apply A1. intros ->. apply Hh. cbn [flat_map]. apply in_or_app. auto.
      * intros Hin. apply Hh. cbn [flat_map]. apply in_or_app. auto.
Qed.

Lemma release_all_spec gs : forall k, invariant k ->
  invariant (release_all gs k) /\
  k_marks (release_all gs k) = k_marks k /\ k_checks (release_all gs k) = k_checks k /\
  length (k_accepted (release_all gs k)) = length (k_accepted k) /\
  (forall g, In g gs -> accepted_at (release_all gs k) g = None) /\
  (forall g, accepted_at k g = None -> accepted_at (release_all gs k) g = None).
Proof.
  induction gs as [|g gs IH]; intros k Hinv; simpl.
  - do 4 (split; [auto|]). split; [tauto|auto].
  - destruct (IH (release g k) (release_invariant g k Hinv)) as (I & M & C & L & A & B).
    destruct (release_marks g k) as (R1 & R2 & R3 & _).
    split; auto. split; [congruence|]. split; [congruence|]. split; [congruence|]. split.
    + intros h [<-|Hh]; auto. apply B. rewrite release_accepted, Nat.eqb_refl. auto.
    + intros h Hh. apply B. rewrite release_accepted. destruct (Nat.eqb g h); auto.
Qed.

(* What acceptance promises. *)
Record accepted_wave (t : certificate) (f : facts) (k : checker) : Prop := {
  ok_wave : t_wave t = a_wave f;
  ok_span : t_span t = a_span f;
  ok_lane : forall m, In m (t_claims t) -> m_lanes m <> [];
  (* No lane is in two groups, or twice in one. *)
  ok_lanes : NoDup (flat_map m_lanes (t_claims t));
  (* Sets of the machine's version, ready set, number and sessions of the picks. *)
  ok_claim : forall m, In m (t_claims t) -> claim_ok f (t_span t) k m;
  ok_sessions : forall i j mi mj vi vj xi xj s,
    nth_error (t_claims t) i = Some mi -> nth_error (t_claims t) j = Some mj -> i <> j ->
    granted k mi = Some (vi, xi) -> granted k mj = Some (vj, xj) ->
    In s (x_sessions xi) -> In s (x_sessions xj) -> False;
  ok_channels : forall i j mi mj vi vj xi xj c,
    nth_error (t_claims t) i = Some mi -> nth_error (t_claims t) j = Some mj -> i <> j ->
    granted k mi = Some (vi, xi) -> granted k mj = Some (vj, xj) ->
    In c (x_channels xi) -> In c (x_channels xj) -> False;
  (* A group holds channels of its own sessions only. *)
  ok_owner : forall m v x c, In m (t_claims t) -> granted k m = Some (v, x) ->
    In c (x_channels x) -> In (fst c) (x_sessions x);
  (* A listed pick is on a lane of its group. *)
  ok_picks : forall m p, In m (t_claims t) -> In p (m_picks m) -> In (p_lane p) (m_lanes m);
  (* A claimed lane is in the machine's group that is claimed. *)
  ok_group : forall m l a, In m (t_claims t) -> In l (m_lanes m) ->
    nth_error (a_lanes f) l = Some a -> first_lane m = f_group a;
  (* A lane that is not claimed is of a group without work that is not claimed either. *)
  ok_rest : forall l a, l < length (k_accepted k) -> nth_error (a_lanes f) l = Some a ->
    ~ In l (flat_map m_lanes (t_claims t)) ->
    f_work a = false /\ ~ In (f_group a) (flat_map m_lanes (t_claims t)) }.

Lemma nodup_flat_map_index {A B} (f : A -> list B) : forall (l : list A),
  NoDup (flat_map f l) ->
  forall i j a b x, nth_error l i = Some a -> nth_error l j = Some b ->
    In x (f a) -> In x (f b) -> i = j.
Proof.
  induction l as [|y l IH]; intros Hnd i j a b x Hi Hj Ha Hb.
  - destruct i; discriminate.
  - cbn [flat_map] in Hnd.
    assert (Hsep : forall z, In z (f y) -> ~ In z (flat_map f l)).
    { clear - Hnd. intros z Hz Hin. induction (f y) as [|u r IHr]; simpl in *; [tauto|].
      inversion Hnd; subst. destruct Hz as [->|Hz]; auto.
      apply H1. apply in_or_app. auto. }
    assert (Hnd2 : NoDup (flat_map f l)).
    { clear - Hnd. induction (f y); simpl in *; auto. inversion Hnd; auto. }
    destruct i, j; simpl in Hi, Hj; auto.
    + injection Hi as ->. exfalso. apply (Hsep x); auto.
      apply in_flat_map. exists b. split; auto. eapply nth_error_In; eauto.
    + injection Hj as ->. exfalso. apply (Hsep x); auto.
      apply in_flat_map. exists a. split; auto. eapply nth_error_In; eauto.
    + f_equal. eapply IH; eauto.
Qed.

Theorem check_sound t f k k' :
  invariant k -> check t f k = (k', None) -> accepted_wave t f k'.
Proof.
  intros Hinv H. unfold check in H.
  destruct (N.eqb_spec (t_wave t) (a_wave f)) as [Hw|]; simpl in H; [|discriminate].
  destruct (span_eqb (t_span t) (a_span f)) eqn:Es; simpl in H; [|discriminate].
  apply span_eqb_eq in Es.
  destruct (mark_claims _ 0 (t_claims t) (k_marks k)) as [marks|] eqn:Em; [|discriminate].
  destruct (mark_claims_spec _ _ _ _ _ Em) as (ML & MD & MN & MA & MB & MC).
  set (k1 := {| k_marks := marks; k_sessions := k_sessions k; k_channels := k_channels k;
                k_accepted := k_accepted k; k_checks := N.succ (k_checks k) |}) in *.
  assert (I1 : invariant k1).
  { destruct Hinv as (Hl & Hm & Ha & Hb & Hd). unfold invariant, k1; simpl.
    split; [lia|]. split; [|split; auto].
    apply Forall_forall. intros mk Hmk. apply In_nth_error in Hmk. destruct Hmk as [l Hl'].
    destruct (in_dec Nat.eq_dec l (flat_map m_lanes (t_claims t))) as [Hi|Hi].
    - apply in_flat_map in Hi. destruct Hi as (m & Hm1 & Hm2).
      rewrite (MC m l) in Hl'; auto. injection Hl' as <-. simpl. lia.
    - rewrite MB in Hl'; auto. apply nth_error_In in Hl'.
      rewrite Forall_forall in Hm. apply Hm in Hl'. lia. }
  destruct (check_groups _ _ _ _ _) as [e|] eqn:Eg; [discriminate|].
  assert (Hgr := check_groups_spec _ _ _ _ _ Eg).
  set (gs := changed_groups (t_claims t)) in *.
  destruct (release_all_spec gs k1 I1) as (I2 & M2 & C2 & L2 & A2 & _).
  destruct (check_claims _ _ _ _) as [k2 e2] eqn:Ec.
  destruct e2 as [e|]; [discriminate|]. injection H as <-.
  destruct (check_claims_spec (t_claims t) (t_span t) f _ k2 I2 MD MN)
    as (I3 & O3 & M3 & C3 & _ & L3); auto.
  { intros m Hm. rewrite L2. unfold k1; simpl.
    destruct Hinv as (Hl & _). rewrite <- Hl.
    apply MA. apply in_flat_map. exists m. split; auto. apply first_lane_in. auto. }
  { intros m Hm Hs. apply A2. unfold gs, changed_groups.
    apply in_map_iff. exists m. split; auto. apply filter_In. split; auto.
    destruct (m_sets m); congruence. }
  assert (Hdiff : forall i j mi mj, nth_error (t_claims t) i = Some mi ->
     nth_error (t_claims t) j = Some mj -> i <> j -> first_lane mi <> first_lane mj).
  { intros i j mi mj Hi Hj Hne Heq. apply Hne.
    eapply (nodup_flat_map_index m_lanes) with (x := first_lane mi); eauto.
    - apply first_lane_in. apply MN. eapply nth_error_In; eauto.
    - rewrite Heq. apply first_lane_in. apply MN. eapply nth_error_In; eauto. }
  constructor; auto.
  - intros i j mi mj vi vj xi xj s Hi Hj Hne Gi Gj Si Sj.
    destruct I3 as (_ & _ & Ha & _).
    destruct (Ha _ _ _ Gi) as (_ & _ & S1 & _). destruct (Ha _ _ _ Gj) as (_ & _ & S2 & _).
    apply S1 in Si. apply S2 in Sj. apply (Hdiff i j mi mj); auto. congruence.
  - intros i j mi mj vi vj xi xj c Hi Hj Hne Gi Gj Si Sj.
    destruct I3 as (_ & _ & Ha & _).
    destruct (Ha _ _ _ Gi) as (_ & _ & _ & S1). destruct (Ha _ _ _ Gj) as (_ & _ & _ & S2).
    apply S1 in Si. apply S2 in Sj. apply (Hdiff i j mi mj); auto.
    destruct Si, Sj. congruence.
  - intros m v x c Hm G Hc. destruct I3 as (_ & _ & Ha & _).
    destruct (Ha _ _ _ G) as (_ & _ & _ & S1). apply S1 in Hc. tauto.
  - intros m p Hm Hp. destruct (O3 m Hm) as (_ & _ & _ & _ & Hpick & _).
    specialize (Hpick p Hp). rewrite M3, M2, C3, C2 in Hpick. unfold k1 in Hpick. simpl in Hpick.
    destruct (in_dec Nat.eq_dec (p_lane p) (flat_map m_lanes (t_claims t))) as [Hi|Hi].
    + apply in_flat_map in Hi. destruct Hi as (m' & Hm' & Hin).
      rewrite (MC m' _ Hm' Hin) in Hpick. injection Hpick as Hf.
      apply In_nth_error in Hm. destruct Hm as [i Hi'].
      apply In_nth_error in Hm'. destruct Hm' as [j Hj'].
      destruct (Nat.eq_dec i j) as [->|Hne].
      * congruence.
      * exfalso. apply (Hdiff i j m m'); auto.
    + rewrite MB in Hpick; auto. apply nth_error_In in Hpick.
      destruct Hinv as (_ & Hmk & _). rewrite Forall_forall in Hmk.
      apply Hmk in Hpick. simpl in Hpick. lia.
  - intros m l a Hm Hl Ha. destruct (Hgr l _ _ a (MC m l Hm Hl) Ha) as [G1 _]. auto.
  - intros l a Hl Ha Hn. rewrite L3, L2 in Hl. unfold k1 in Hl. simpl in Hl.
    destruct Hinv as (Hlen & Hmk & _).
    destruct (nth_error marks l) as [[m h]|] eqn:E.
    2:{ apply nth_error_None in E. lia. }
    destruct (Hgr l m h a E Ha) as [_ G2].
    assert (Hne : m <> N.succ (k_checks k)).
    { rewrite MB in E; auto. apply nth_error_In in E. rewrite Forall_forall in Hmk.
      apply Hmk in E. simpl in E. lia. }
    destruct (G2 Hne) as [G3 G4]. split; auto. intros Hin.
    apply in_flat_map in Hin. destruct Hin as (m' & Hm' & Hin).
    unfold is_claimed in G3. rewrite (MC m' _ Hm' Hin), N.eqb_refl in G3. discriminate.
Qed.

(* The invariant holds after every check, accepted or refused. *)
Lemma check_claims_invariant ms s f : forall k k' e,
  invariant k ->
  NoDup (flat_map m_lanes ms) -> (forall m, In m ms -> m_lanes m <> []) ->
  (forall m, In m ms -> first_lane m < length (k_accepted k)) ->
  (forall m, In m ms -> m_sets m <> None -> accepted_at k (first_lane m) = None) ->
  check_claims ms s f k = (k', e) ->
  invariant k' /\ length (k_accepted k') = length (k_accepted k).
Proof.
  induction ms as [|m ms IH]; intros k k' e Hinv Hnd Hne Hlen Hfree H; simpl in H.
  - injection H as <- _. auto.
  - cbn [flat_map] in Hnd.
    assert (Hm := first_lane_in m (Hne m (or_introl eq_refl))).
    assert (Hsep : forall l, In l (m_lanes m) -> ~ In l (flat_map m_lanes ms)).
    { clear - Hnd. intros l Hl Hin. induction (m_lanes m) as [|a r IHr]; simpl in *; [tauto|].
      inversion Hnd; subst. destruct Hl as [->|Hl]; auto.
      apply H1. apply in_or_app. auto. }
    assert (Hnd2 : NoDup (flat_map m_lanes ms)).
    { clear - Hnd. induction (m_lanes m); simpl in *; auto. inversion Hnd; auto. }
    assert (Hother : forall m', In m' ms -> first_lane m' <> first_lane m).
    { intros m' Hm' Heq. apply (Hsep (first_lane m)); auto.
      apply in_flat_map. exists m'. split; auto. rewrite <- Heq.
      apply first_lane_in. apply Hne. right; auto. }
    destruct (check_claim m s f k) as [k1 e1] eqn:E1.
    assert (K : invariant k1 /\ length (k_accepted k1) = length (k_accepted k) /\
                (forall h, h <> first_lane m -> accepted_at k1 h = accepted_at k h)).
    { unfold check_claim in E1.
      destruct (match m_sets m with Some x => _ | None => _ end) as [k0 e0] eqn:E0.
      assert (K0 : invariant k0 /\ length (k_accepted k0) = length (k_accepted k) /\
                (forall h, h <> first_lane m -> accepted_at k0 h = accepted_at k h)).
      { destruct (m_sets m) as [x|] eqn:Ex.
        - destruct (hold_facts _ _ _ _ _ _ E0) as (_ & _ & F3 & F4 & _). split; auto.
          eapply hold_invariant; eauto.
          + apply Hfree; [left; auto|congruence].
          + apply Hlen. left; auto.
        - injection E0 as <- _. auto. }
      destruct e0; [injection E1 as <- _; auto|].
      destruct (check_sent _ _ _); [injection E1 as <- _; auto|].
      destruct (check_versions _ _ _ _ _); [injection E1 as <- _; auto|].
      destruct (N.eqb _ _); injection E1 as <- _; auto. }
    destruct K as (K1 & K2 & K3).
    destruct e1 as [r|]; [injection H as <- _; auto|].
    destruct (IH k1 k' e) as [J1 J2]; auto.
    + intros m' Hm'. apply Hne. right; auto.
    + intros m' Hm'. rewrite K2. apply Hlen. right; auto.
    + intros m' Hm' Hs. rewrite K3; auto. apply Hfree; auto. right; auto.
    + split; auto. congruence.
Qed.

Lemma restore_all_invariant before : forall k,
  invariant k -> NoDup (map fst before) ->
  (forall b, In b before -> fst b < length (k_accepted k)) ->
  (forall b, In b before -> accepted_at k (fst b) = None) ->
  invariant (fold_left restore before k).
Proof.
  induction before as [|b before IH]; intros k Hinv Hnd Hlen Hfree; simpl; auto.
  inversion Hnd; subst.
  assert (Hn : forall b', In b' before -> fst b' <> fst b).
  { intros b' Hb' Heq. apply H1. rewrite <- Heq. apply in_map. auto. }
  unfold restore at 2. destruct (snd b) as [[v x]|].
  - destruct (hold (fst b) v x k) as [k1 e] eqn:E. simpl.
    destruct (hold_facts _ _ _ _ _ _ E) as (_ & _ & F3 & F4 & _).
    apply IH; auto.
    + eapply hold_invariant; eauto.
      * apply Hfree. left; auto.
      * apply Hlen. left; auto.
    + intros b' Hb'. rewrite F3. apply Hlen. right; auto.
    + intros b' Hb'. rewrite F4; auto. apply Hfree. right; auto.
  - apply IH; auto.
    + intros b' Hb'. apply Hlen. right; auto.
    + intros b' Hb'. apply Hfree. right; auto.
Qed.

Theorem check_invariant t f k : invariant k -> invariant (fst (check t f k)).
Proof.
  intros Hinv. unfold check.
  destruct (N.eqb (t_wave t) (a_wave f)); simpl; auto.
  destruct (span_eqb (t_span t) (a_span f)); simpl; auto.
  assert (Hsucc : forall marks, length marks = length (k_marks k) ->
     Forall (fun m => (fst m <= N.succ (k_checks k))%N) marks ->
     invariant {| k_marks := marks; k_sessions := k_sessions k; k_channels := k_channels k;
                  k_accepted := k_accepted k; k_checks := N.succ (k_checks k) |}).
  { intros marks Hl Hm. destruct Hinv as (H1 & _ & H3 & H4 & H5).
    unfold invariant; simpl. split; [lia|]. split; auto. }
  destruct (mark_claims _ 0 (t_claims t) (k_marks k)) as [marks|] eqn:Em; simpl.
  2:{ apply Hsucc; auto. destruct Hinv as (_ & Hm & _).
      eapply Forall_impl; [|exact Hm]. simpl. intros. lia. }
  destruct (mark_claims_spec _ _ _ _ _ Em) as (ML & MD & MN & MA & MB & MC).
  assert (I1 := Hsucc marks ML).
  assert (Hm1 : Forall (fun m => (fst m <= N.succ (k_checks k))%N) marks).
  { destruct Hinv as (_ & Hm & _).
    apply Forall_forall. intros mk Hmk. apply In_nth_error in Hmk. destruct Hmk as [l Hl'].
    destruct (in_dec Nat.eq_dec l (flat_map m_lanes (t_claims t))) as [Hi|Hi].
    - apply in_flat_map in Hi. destruct Hi as (m & Hm1 & Hm2).
      rewrite (MC m l) in Hl'; auto. injection Hl' as <-. simpl. lia.
    - rewrite MB in Hl'; auto. apply nth_error_In in Hl'.
      rewrite Forall_forall in Hm. apply Hm in Hl'. lia. }
  specialize (I1 Hm1).
  set (k1 := {| k_marks := marks; k_sessions := k_sessions k; k_channels := k_channels k;
                k_accepted := k_accepted k; k_checks := N.succ (k_checks k) |}) in *.
  destruct (check_groups _ _ _ _ _) as [e|]; [exact I1|].
  set (gs := changed_groups (t_claims t)) in *.
  destruct (release_all_spec gs k1 I1) as (I2 & M2 & C2 & L2 & A2 & _).
  destruct (check_claims _ _ _ _) as [k2 e2] eqn:Ec.
  assert (Hfirst : forall m, In m (t_claims t) -> first_lane m < length (k_accepted k1)).
  { intros m Hm. unfold k1; simpl. destruct Hinv as (Hl & _). rewrite <- Hl.
    apply MA. apply in_flat_map. exists m. split; auto. apply first_lane_in. auto. }
  destruct (check_claims_invariant (t_claims t) (t_span t) f _ k2 e2 I2 MD MN)
    as [I3 L3]; auto.
  { intros m Hm. rewrite L2. auto. }
  { intros m Hm Hs. apply A2. unfold gs, changed_groups.
    apply in_map_iff. exists m. split; auto. apply filter_In. split; auto.
    destruct (m_sets m); congruence. }
  destruct e2 as [e|]; simpl; auto.
  destruct (release_all_spec gs k2 I3) as (I4 & _ & _ & L4 & A4 & _).
  apply restore_all_invariant; auto.
  - rewrite map_map. simpl. rewrite map_id. unfold gs, changed_groups.
    clear - MD MN. induction (t_claims t) as [|m ms IH]; simpl; [constructor|].
    cbn [flat_map] in MD.
    assert (Hsep : forall l, In l (m_lanes m) -> ~ In l (flat_map m_lanes ms)).
    { clear - MD. intros l Hl Hin. induction (m_lanes m) as [|a r IHr]; simpl in *; [tauto|].
      inversion MD; subst. destruct Hl as [->|Hl]; auto.
      apply H1. apply in_or_app. auto. }
    assert (Hnd2 : NoDup (flat_map m_lanes ms)).
    { clear - MD. induction (m_lanes m); simpl in *; auto. inversion MD; auto. }
    assert (IH' : NoDup (map first_lane (filter (fun m0 => match m_sets m0 with
       Some _ => true | None => false end) ms))).
    { apply IH; auto. intros m' Hm'. apply MN. right; auto. }
    destruct (m_sets m); simpl; auto. constructor; auto.
    intros Hin. apply in_map_iff in Hin. destruct Hin as (m' & Heq & Hm').
    apply filter_In in Hm'. destruct Hm' as [Hm' _].
    apply (Hsep (first_lane m)).
    + apply first_lane_in. apply MN. left; auto.
    + apply in_flat_map. exists m'. split; auto. rewrite <- Heq. apply first_lane_in.
      apply MN. right; auto.
  - intros b Hb. apply in_map_iff in Hb. destruct Hb as (g & <- & Hg). simpl.
    unfold gs, changed_groups in Hg. apply in_map_iff in Hg. destruct Hg as (m & <- & Hm).
    apply filter_In in Hm. destruct Hm. rewrite L4, L3, L2. auto.
  - intros b Hb. apply in_map_iff in Hb. destruct Hb as (g & <- & Hg). simpl. auto.
Qed.

(* A checker that has seen any certificates, from its start. *)
Fixpoint after (h : list (certificate * facts)) (k : checker) : checker :=
  match h with [] => k | (t, f) :: r => after r (fst (check t f k)) end.

Theorem checker_invariant h : forall k, invariant k -> invariant (after h k).
Proof. induction h as [|[t f] h IH]; intros k H; simpl; auto using check_invariant. Qed.

Theorem certificate_sound lanes sessions h t f k' :
  check t f (after h (new_checker lanes sessions)) = (k', None) -> accepted_wave t f k'.
Proof.
  apply check_sound. apply checker_invariant. apply new_checker_invariant.
Qed.

(* ---- What a check leaves as it was ---- *)

Lemma hold_length g v x k k' e :
  hold g v x k = (k', e) -> length (k_sessions k') = length (k_sessions k).
Proof.
  unfold hold. intros H.
  destruct (take_sessions g (x_sessions x) (k_sessions k)) as [[held ss] e1] eqn:E1.
  apply take_sessions_spec in E1. destruct E1 as (_ & L & _).
  destruct (match e1 with Some _ => _ | None => _ end) as [[chans cs] e2].
  injection H as <- <-. auto.
Qed.

Lemma check_claim_others m s f k k' e : check_claim m s f k = (k', e) ->
  length (k_sessions k') = length (k_sessions k) /\
  length (k_accepted k') = length (k_accepted k) /\
  (forall h, (m_sets m <> None -> first_lane m <> h) -> accepted_at k' h = accepted_at k h).
Proof.
  unfold check_claim. intros H.
  destruct (match m_sets m with Some x => _ | None => _ end) as [k1 e1] eqn:E1.
  assert (K : length (k_sessions k1) = length (k_sessions k) /\
    length (k_accepted k1) = length (k_accepted k) /\
    (forall h, (m_sets m <> None -> first_lane m <> h) -> accepted_at k1 h = accepted_at k h)).
  { destruct (m_sets m) as [x|].
    - destruct (hold_facts _ _ _ _ _ _ E1) as (_ & _ & F3 & F4 & _).
      split; [eapply hold_length; eauto|]. split; auto.
      intros h Hh. apply F4. intros ->. apply Hh; [discriminate|auto].
    - injection E1 as <- _. auto. }
  destruct e1; [injection H as <- _; auto|].
  destruct (check_sent _ _ _); [injection H as <- _; auto|].
  destruct (check_versions _ _ _ _ _); [injection H as <- _; auto|].
  destruct (N.eqb _ _); injection H as <- _; auto.
Qed.

Lemma check_claims_others ms s f : forall k k' e, check_claims ms s f k = (k', e) ->
  length (k_sessions k') = length (k_sessions k) /\
  length (k_accepted k') = length (k_accepted k) /\
  (forall h, ~ In h (changed_groups ms) -> accepted_at k' h = accepted_at k h).
Proof.
  induction ms as [|m ms IH]; intros k k' e H; simpl in H.
  - injection H as <- _. auto.
  - destruct (check_claim m s f k) as [k1 e1] eqn:E1.
    destruct (check_claim_others _ _ _ _ _ _ E1) as (A1 & A2 & A3).
    assert (Hm : forall h, ~ In h (changed_groups (m :: ms)) ->
       (m_sets m <> None -> first_lane m <> h) /\ ~ In h (changed_groups ms)).
    { intros h Hh. unfold changed_groups in *. simpl in Hh. destruct (m_sets m); simpl in Hh.
      - split; [intros _ Heq|intros Hin]; apply Hh; auto.
      - split; [congruence|auto]. }
    destruct e1 as [r|].
    + injection H as <- _. split; auto. split; auto. intros h Hh. apply A3. apply Hm. auto.
    + destruct (IH _ _ _ H) as (B1 & B2 & B3). split; [congruence|]. split; [congruence|].
      intros h Hh. apply Hm in Hh. destruct Hh. rewrite B3, A3; auto.
Qed.

Lemma release_all_others gs : forall k h, ~ In h gs ->
  accepted_at (release_all gs k) h = accepted_at k h.
Proof.
  induction gs as [|g gs IH]; intros k h H; simpl; auto.
  rewrite IH; [|intros Hin; apply H; right; auto].
  rewrite release_accepted. destruct (Nat.eqb_spec g h) as [->|]; auto.
  exfalso. apply H. left; auto.
Qed.

Lemma release_all_length gs : forall k,
  length (k_sessions (release_all gs k)) = length (k_sessions k).
Proof.
  induction gs as [|g gs IH]; intros k; simpl; auto.
  rewrite IH. apply release_marks.
Qed.

Lemma take_sessions_free g ss : forall held,
  NoDup ss -> (forall s, In s ss -> nth_error held s = Some None) ->
  snd (take_sessions g ss held) = None.
Proof.
  induction ss as [|s ss IH]; intros held Hnd H; simpl; auto.
  rewrite (H s (or_introl eq_refl)). inversion Hnd; subst.
  specialize (IH (upd s (Some g) held)).
  destruct (take_sessions g ss (upd s (Some g) held)) as [[h t] e]. simpl in *.
  apply IH; auto. intros s' Hs'. rewrite nth_upd_ne; [apply H; auto|].
  intros ->. contradiction.
Qed.

Lemma take_channels_free g held cs : forall chans,
  NoDup cs -> (forall c, In c cs -> holder_of c chans = None /\
                                   nth_error held (fst c) = Some (Some g)) ->
  snd (take_channels g held cs chans) = None.
Proof.
  induction cs as [|c cs IH]; intros chans Hnd H; simpl; auto.
  destruct (H c (or_introl eq_refl)) as [H1 H2]. rewrite H1, H2, Nat.eqb_refl.
  inversion Hnd; subst. specialize (IH ((c, g) :: chans)).
  destruct (take_channels g held cs ((c, g) :: chans)) as [[h t] e]. simpl in *.
  apply IH; auto. intros d Hd. destruct (H d (or_intror Hd)) as [D1 D2]. split; auto.
  destruct (channel_eqb_spec d c) as [->|]; auto. contradiction.
Qed.

(* Taking back what was held before cannot fail. *)
Lemma restore_one k s g v x :
  invariant k -> invariant s -> length (k_sessions s) = length (k_sessions k) ->
  (forall h y, accepted_at s h = Some y -> accepted_at k h = Some y) ->
  accepted_at s g = None -> accepted_at k g = Some (v, x) -> g < length (k_accepted s) ->
  exists s', hold g v x s = (s', None) /\ accepted_at s' g = Some (v, x) /\
    (forall h, h <> g -> accepted_at s' h = accepted_at s h) /\
    length (k_accepted s') = length (k_accepted s) /\
    length (k_sessions s') = length (k_sessions s) /\ invariant s'.
Proof.
  intros Ik Is Hlen Hsub Hnone Hk Hg.
  destruct Ik as (_ & _ & Ka & _ & _). destruct (Ka g v x Hk) as (N1 & N2 & S1 & C1).
  assert (Hfree : forall t, In t (x_sessions x) -> nth_error (k_sessions s) t = Some None).
  { intros t Ht. assert (Hin := S1 t Ht).
    destruct (nth_error (k_sessions s) t) as [[h|]|] eqn:E; auto.
    - destruct Is as (_ & _ & _ & Sb & _). destruct (Sb t h E) as (w & y & Hy & Hty).
      apply Hsub in Hy. destruct (Ka h w y Hy) as (_ & _ & S2 & _).
      apply S2 in Hty. rewrite Hin in Hty. injection Hty as <-.
      rewrite Hk in Hy. exfalso.
      destruct (Sb t g E) as (w' & y' & Hy' & _). congruence.
    - exfalso. apply nth_error_None in E. assert (t < length (k_sessions k))
        by (apply nth_error_Some; congruence). lia. }
  assert (Hchan : forall c, In c (x_channels x) -> holder_of c (k_channels s) = None).
  { intros c Hc. destruct (C1 c Hc) as [Hin _].
    destruct (holder_of c (k_channels s)) as [h|] eqn:E; auto.
    destruct Is as (_ & _ & _ & _ & Sd). destruct (Sd c h E) as (w & y & Hy & Hcy).
    assert (Hy2 := Hsub _ _ Hy). destruct (Ka h w y Hy2) as (_ & _ & _ & S2).
    apply S2 in Hcy. destruct Hcy as [Hcy _]. rewrite Hin in Hcy. injection Hcy as <-.
    congruence. }
  destruct (hold g v x s) as [s' e] eqn:Eh.
  assert (He : e = None).
  { unfold hold in Eh.
    assert (T := take_sessions_free g (x_sessions x) (k_sessions s) N1 Hfree).
    destruct (take_sessions g (x_sessions x) (k_sessions s)) as [[held ss] e1] eqn:E1.
    simpl in T. subst e1. apply take_sessions_spec in E1. destruct E1 as (_ & _ & _ & B & C).
    specialize (C eq_refl). subst ss.
    assert (U := take_channels_free g held (x_channels x) (k_channels s) N2).
    destruct (take_channels g held (x_channels x) (k_channels s)) as [[chans cs] e2].
    simpl in U. injection Eh as _ <-. apply U. intros c Hc. split; auto.
    rewrite B. destruct (C1 c Hc) as [_ Hin].
    destruct (in_dec Nat.eq_dec (fst c) (x_sessions x)); [auto|contradiction]. }
  subst e. destruct (hold_facts _ _ _ _ _ _ Eh) as (_ & _ & F3 & F4 & F5).
  exists s'. split; auto. split; auto. split; auto. split; auto.
  split; [eapply hold_length; eauto|]. eapply hold_invariant; eauto.
Qed.

Lemma restore_all k before : forall s,
  invariant k -> invariant s -> length (k_sessions s) = length (k_sessions k) ->
  (forall h y, accepted_at s h = Some y -> accepted_at k h = Some y) ->
  NoDup (map fst before) ->
  (forall b, In b before -> snd b = accepted_at k (fst b) /\ accepted_at s (fst b) = None /\
                            fst b < length (k_accepted s)) ->
  forall h, accepted_at (fold_left restore before s) h =
    if in_dec Nat.eq_dec h (map fst before) then accepted_at k h else accepted_at s h.
Proof.
  induction before as [|[g o] before IH]; intros s Ik Is Hlen Hsub Hnd Hb h; simpl; auto.
  inversion Hnd as [|? ? Hni Hnd']; subst.
  destruct (Hb (g, o) (or_introl eq_refl)) as (B1 & B2 & B3). simpl in B1, B2, B3.
  assert (Hother : forall b, In b before -> fst b <> g).
  { intros b Hin Heq. apply Hni. rewrite <- Heq. apply in_map. auto. }
  unfold restore at 2. simpl. destruct o as [[v x]|].
  - symmetry in B1.
    destruct (restore_one k s g v x) as (s' & E & A1 & A2 & A3 & A4 & A5); auto.
    rewrite E. simpl. rewrite IH; auto; [|congruence| |].
    + destruct (Nat.eq_dec g h) as [->|Hne].
      * destruct (in_dec Nat.eq_dec h (map fst before)); [auto|congruence].
      * destruct (in_dec Nat.eq_dec h (map fst before)); auto.
    + intros h' y Hy. destruct (Nat.eq_dec h' g) as [->|Hne]; [congruence|].
      rewrite A2 in Hy; auto.
    + intros b Hin. destruct (Hb b (or_intror Hin)) as (C1 & C2 & C3).
      split; auto. split; [rewrite A2; auto|lia].
  - rewrite IH; auto.
    + destruct (Nat.eq_dec g h) as [->|Hne].
      * destruct (in_dec Nat.eq_dec h (map fst before)); [auto|congruence].
      * destruct (in_dec Nat.eq_dec h (map fst before)); auto.
    + intros b Hin. apply Hb. right; auto.
Qed.

Lemma changed_nodup ms :
  NoDup (flat_map m_lanes ms) -> (forall m, In m ms -> m_lanes m <> []) ->
  NoDup (changed_groups ms).
Proof.
  unfold changed_groups. induction ms as [|m ms IH]; intros MD MN; simpl; [constructor|].
  cbn [flat_map] in MD.
  assert (Hsep : forall l, In l (m_lanes m) -> ~ In l (flat_map m_lanes ms)).
  { clear - MD. intros l Hl Hin. induction (m_lanes m) as [|a r IHr]; simpl in *; [tauto|].
    inversion MD; subst. destruct Hl as [->|Hl]; auto. apply H1. apply in_or_app. auto. }
  assert (Hnd2 : NoDup (flat_map m_lanes ms)).
  { clear - MD. induction (m_lanes m); simpl in *; auto. inversion MD; auto. }
  specialize (IH Hnd2 (fun m' Hm' => MN m' (or_intror Hm'))).
  destruct (m_sets m); simpl; auto. constructor; auto.
  intros Hin. apply in_map_iff in Hin. destruct Hin as (m' & Heq & Hm').
  apply filter_In in Hm'. destruct Hm' as [Hm' _]. apply (Hsep (first_lane m)).
  - apply first_lane_in. apply MN. left; auto.
  - apply in_flat_map. exists m'. split; auto. rewrite <- Heq. apply first_lane_in.
    apply MN. right; auto.
Qed.

(* What a refused certificate claimed is not kept, and what was held before is held
   still. *)
Theorem refused_check_keeps_sets t f k k' r :
  invariant k -> check t f k = (k', Some r) ->
  forall h, accepted_at k' h = accepted_at k h.
Proof.
  intros Hinv H h. unfold check in H.
  destruct (N.eqb (t_wave t) (a_wave f)); simpl in H; [|injection H as <- _; auto].
  destruct (span_eqb (t_span t) (a_span f)); simpl in H; [|injection H as <- _; auto].
  destruct (mark_claims _ 0 (t_claims t) (k_marks k)) as [marks|] eqn:Em;
    [|injection H as <- _; auto].
  destruct (mark_claims_spec _ _ _ _ _ Em) as (ML & MD & MN & MA & MB & MC).
  set (k1 := {| k_marks := marks; k_sessions := k_sessions k; k_channels := k_channels k;
                k_accepted := k_accepted k; k_checks := N.succ (k_checks k) |}) in *.
  assert (I1 : invariant k1).
  { destruct Hinv as (Hl & Hm & Ha & Hb & Hd). unfold invariant, k1; simpl.
    split; [lia|]. split; [|split; auto].
    apply Forall_forall. intros mk Hmk. apply In_nth_error in Hmk. destruct Hmk as [l Hl'].
    destruct (in_dec Nat.eq_dec l (flat_map m_lanes (t_claims t))) as [Hi|Hi].
    - apply in_flat_map in Hi. destruct Hi as (m & Hm1 & Hm2).
      rewrite (MC m l) in Hl'; auto. injection Hl' as <-. simpl. lia.
    - rewrite MB in Hl'; auto. apply nth_error_In in Hl'.
      rewrite Forall_forall in Hm. apply Hm in Hl'. lia. }
  destruct (check_groups _ _ _ _ _) as [e|]; [injection H as <- _; auto|].
  set (gs := changed_groups (t_claims t)) in *.
  assert (Hgs : forall g, In g gs -> g < length (k_accepted k1)).
  { intros g Hg. unfold gs, changed_groups in Hg. apply in_map_iff in Hg.
    destruct Hg as (m & <- & Hm). apply filter_In in Hm. destruct Hm as [Hm _].
    unfold k1; simpl. destruct Hinv as (Hl & _). rewrite <- Hl.
    apply MA. apply in_flat_map. exists m. split; auto. apply first_lane_in. auto. }
  destruct (release_all_spec gs k1 I1) as (I2 & M2 & C2 & L2 & A2 & _).
  destruct (check_claims _ _ _ _) as [k2 e2] eqn:Ec.
  destruct e2 as [e|]; [|discriminate]. injection H as <- <-.
  destruct (check_claims_invariant (t_claims t) (t_span t) f _ k2 (Some e) I2 MD MN) as [I3 L3];
    auto.
  { intros m Hm. rewrite L2. unfold k1; simpl. destruct Hinv as (Hl & _). rewrite <- Hl.
    apply MA. apply in_flat_map. exists m. split; auto. apply first_lane_in. auto. }
  { intros m Hm Hs. apply A2. unfold gs, changed_groups.
    apply in_map_iff. exists m. split; auto. apply filter_In. split; auto.
    destruct (m_sets m); congruence. }
  destruct (check_claims_others _ _ _ _ _ _ Ec) as (O1 & O2 & O3). fold gs in O3.
  destruct (release_all_spec gs k2 I3) as (I4 & _ & _ & L4 & A4 & _).
  assert (Hrest : forall h, ~ In h gs -> accepted_at (release_all gs k2) h = accepted_at k1 h).
  { intros g Hg. rewrite release_all_others, O3, release_all_others; auto. }
  rewrite (restore_all k1); auto.
  - rewrite map_map. simpl. rewrite map_id.
    destruct (in_dec Nat.eq_dec h gs); auto. rewrite Hrest; auto.
  - rewrite release_all_length, O1, release_all_length. auto.
  - intros g y Hy. destruct (in_dec Nat.eq_dec g gs) as [Hi|Hi].
    + rewrite A4 in Hy; auto. discriminate.
    + rewrite Hrest in Hy; auto.
  - rewrite map_map. simpl. rewrite map_id. apply changed_nodup; auto.
  - intros b Hb. apply in_map_iff in Hb. destruct Hb as (g & <- & Hg). simpl.
    split; auto. split; auto. rewrite L4, L3, L2. auto.
Qed.

(* An accepted one changes the sets of the groups that sent some, and no others. *)
Theorem accepted_check_keeps_others t f k k' h :
  check t f k = (k', None) -> ~ In h (changed_groups (t_claims t)) ->
  accepted_at k' h = accepted_at k h.
Proof.
  intros H Hh. unfold check in H.
  destruct (N.eqb (t_wave t) (a_wave f)); simpl in H; [|discriminate].
  destruct (span_eqb (t_span t) (a_span f)); simpl in H; [|discriminate].
  destruct (mark_claims _ 0 (t_claims t) (k_marks k)) as [marks|]; [|discriminate].
  destruct (check_groups _ _ _ _ _); [discriminate|].
  destruct (check_claims _ _ _ _) as [k2 e2] eqn:Ec.
  destruct e2 as [e|]; [discriminate|]. injection H as <-.
  destruct (check_claims_others _ _ _ _ _ _ Ec) as (_ & _ & O3).
  rewrite O3, release_all_others; auto.
Qed.

(* ---- Sessions start ---- *)

(* The machine now has [n] sessions; the new ones are held by nobody. *)
Definition admit (n : nat) (k : checker) : checker :=
  {| k_marks := k_marks k;
     k_sessions := k_sessions k ++ repeat None (n - length (k_sessions k));
     k_channels := k_channels k; k_accepted := k_accepted k; k_checks := k_checks k |}.

Theorem admit_invariant n k : invariant k -> invariant (admit n k).
Proof.
  intros (H1 & H2 & H3 & H4 & H5). unfold invariant, admit, accepted_at in *; simpl.
  split; auto. split; auto. split; [|split; auto].
  - intros g v x H. destruct (H3 g v x H) as (A & B & C & D). repeat split; auto.
    + intros s Hs. assert (E := C s Hs). rewrite nth_error_app1; auto.
      apply nth_error_Some. congruence.
    + apply (D c); auto.
    + apply (D c); auto.
  - intros s g H. apply H4. destruct (Nat.lt_ge_cases s (length (k_sessions k))) as [Hs|Hs].
    + rewrite nth_error_app1 in H; auto.
    + rewrite nth_error_app2 in H; auto. apply nth_repeat in H. discriminate.
Qed.
