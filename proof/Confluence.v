(** Confluence: programs that only communicate give the same observables under every policy.

    Processes are any deterministic programs that send to, receive from and output over bounded
    channels, each with one sender and one receiver. A schedule is any choice, at each point, among
    the processes that can go on, so every policy, wave length and number of lanes is one. If one
    schedule ends, every schedule ends after as many steps, with the same outputs, messages left and
    process states ([confluence]).

    Two theorems show what the premises exclude: a receive that does not wait ([try_breaks]) and a
    wait on two channels ([select_breaks]) each give two outputs under two schedules. So would two
    senders of one channel, or a process that reads the time. *)

From Coq Require Import ZArith List Arith Lia.
Import ListNotations.

Section Confluence.

(** A process's own state. *)
Variable own : Type.

Inductive action :=
| Send (c : nat) (v : Z) (then_ : own)
| Receive (c : nat) (then_ : Z -> own)
| Output (v : Z) (then_ : own)
| TryReceive (c : nat) (then_ : option Z -> own)   (** does not wait *)
| Select (c d : nat) (then_ : bool -> own)         (** waits for either; [c] first *)
| Done.

Variable next : nat -> own -> action.
Variable capacity : nat -> nat.

Record state := State {
  process : nat -> own;
  queue : nat -> list Z;
  output : nat -> list Z }.

Definition put {A} (f : nat -> A) (i : nat) (x : A) : nat -> A :=
  fun j => if Nat.eqb j i then x else f j.

Definition resumes (p : nat) (k : own) (s : state) : state :=
  State (put (process s) p k) (queue s) (output s).
Definition with_queue (c : nat) (q : list Z) (s : state) : state :=
  State (process s) (put (queue s) c q) (output s).

(** One step of a process; [None]: it waits, or has ended. *)
Definition step (p : nat) (s : state) : option state :=
  match next p (process s p) with
  | Send c v k =>
      if length (queue s c) <? capacity c
      then Some (resumes p k (with_queue c (queue s c ++ [v]) s)) else None
  | Receive c k =>
      match queue s c with
      | [] => None
      | v :: r => Some (resumes p (k v) (with_queue c r s))
      end
  | Output v k =>
      Some (State (put (process s) p k) (queue s) (put (output s) p (output s p ++ [v])))
  | TryReceive c k =>
      match queue s c with
      | [] => Some (resumes p (k None) s)
      | v :: r => Some (resumes p (k (Some v)) (with_queue c r s))
      end
  | Select c d k =>
      match queue s c, queue s d with
      | _ :: _, _ => Some (resumes p (k true) s)
      | [], _ :: _ => Some (resumes p (k false) s)
      | [], [] => None
      end
  | Done => None
  end.

Fixpoint run (schedule : list nat) (s : state) : option state :=
  match schedule with
  | [] => Some s
  | p :: r => match step p s with Some t => run r t | None => None end
  end.

Definition ended (s : state) : Prop := forall p, step p s = None.

Definition same (s t : state) : Prop :=
  (forall i, process s i = process t i) /\ (forall i, queue s i = queue t i) /\
  (forall i, output s i = output t i).

Lemma same_refl s : same s s.
Proof. repeat split. Qed.

Lemma same_trans s t u : same s t -> same t u -> same s u.
Proof. intros (A & B & C) (D & E & F). repeat split; intros i; congruence. Qed.

Lemma same_sym s t : same s t -> same t s.
Proof. intros (A & B & C). repeat split; intros i; auto. Qed.

Ltac puts := intros; cbn; unfold put;
  repeat match goal with |- context [Nat.eqb ?a ?b] => destruct (Nat.eqb_spec a b); subst end;
  try congruence; auto.

Lemma step_same p s t s' : same s t -> step p s = Some s' ->
  exists t', step p t = Some t' /\ same s' t'.
Proof.
  intros (A & B & C) H. unfold step in *. rewrite <- A.
  destruct (next p (process s p)) as [c v k|c k|v k|c k|c d k|]; try discriminate;
    rewrite <- ?B.
  - destruct (length (queue s c) <? capacity c); [|discriminate]. injection H as <-.
    eexists. split; [reflexivity|]. repeat split; puts.
  - destruct (queue s c) as [|v r]; [discriminate|]. injection H as <-.
    eexists. split; [reflexivity|]. repeat split; puts.
  - injection H as <-. eexists. split; [reflexivity|]. rewrite <- C. repeat split; puts.
  - destruct (queue s c) as [|v r]; injection H as <-;
      (eexists; split; [reflexivity|]; repeat split; puts).
  - destruct (queue s c) as [|v r]; [destruct (queue s d); [discriminate|]|]; injection H as <-;
      (eexists; split; [reflexivity|]; repeat split; puts).
Qed.

Lemma run_same l : forall s t s', same s t -> run l s = Some s' ->
  exists t', run l t = Some t' /\ same s' t'.
Proof.
  induction l as [|p l IH]; intros s t s' E H; cbn in *.
  - injection H as <-. eauto.
  - destruct (step p s) as [u|] eqn:Es; [|discriminate].
    destruct (step_same p s t u E Es) as (u' & -> & Eu). eauto.
Qed.

Lemma ended_same s t : same s t -> ended s -> ended t.
Proof.
  intros E H p. destruct (step p t) as [u|] eqn:Es; auto.
  destruct (step_same p t s u (same_sym _ _ E) Es) as (u' & Eu & _). rewrite H in Eu. discriminate.
Qed.

(** The premises: waiting receives only, and one sender and one receiver per channel. *)
Variable sender receiver : nat -> nat.
Hypothesis only_communicates : forall p k,
  match next p k with
  | Send c _ _ => p = sender c
  | Receive c _ => p = receiver c
  | TryReceive _ _ | Select _ _ _ => False
  | Output _ _ | Done => True
  end.

Ltac fields := cbn [process queue output resumes with_queue] in *; unfold put.

Lemma diamond p q s a b : p <> q -> step p s = Some a -> step q s = Some b ->
  exists c d, step q a = Some c /\ step p b = Some d /\ same c d.
Proof.
  intros Hpq Hp Hq.
  assert (Op := only_communicates p (process s p)).
  assert (Oq := only_communicates q (process s q)).
  assert (Ap : process a q = process s q /\ process b p = process s p).
  { split.
    - unfold step in Hp. destruct (next p (process s p)); try discriminate;
        repeat match type of Hp with
        | (if ?x then _ else _) = _ => destruct x
        | match ?x with [] => _ | _ :: _ => _ end = _ => destruct x
        end; try discriminate; injection Hp as <-; puts.
    - unfold step in Hq. destruct (next q (process s q)); try discriminate;
        repeat match type of Hq with
        | (if ?x then _ else _) = _ => destruct x
        | match ?x with [] => _ | _ :: _ => _ end = _ => destruct x
        end; try discriminate; injection Hq as <-; puts. }
  destruct Ap as [Ap Aq]. unfold step in Hp, Hq |- *. rewrite Ap, Aq.
  destruct (next p (process s p)) as [c v k|c k|v k|c k|c d k|] eqn:Np; try tauto; try discriminate;
  destruct (next q (process s q)) as [e w m|e m|w m|e m|e g m|] eqn:Nq; try tauto; try discriminate.
  - (* two sends, to two channels *)
    assert (c <> e) by congruence.
    destruct (Nat.ltb_spec (length (queue s c)) (capacity c)); [|discriminate].
    destruct (Nat.ltb_spec (length (queue s e)) (capacity e)); [|discriminate].
    injection Hp as <-. injection Hq as <-. fields.
    destruct (Nat.eqb_spec e c); [congruence|]. destruct (Nat.eqb_spec c e); [congruence|].
    destruct (Nat.ltb_spec (length (queue s e)) (capacity e)); [|lia].
    destruct (Nat.ltb_spec (length (queue s c)) (capacity c)); [|lia].
    do 2 eexists. split; [reflexivity|]. split; [reflexivity|]. repeat split; puts.
  - (* a send and a receive, perhaps on one channel *)
    destruct (Nat.ltb_spec (length (queue s c)) (capacity c)); [|discriminate].
    destruct (queue s e) as [|x r] eqn:Eq; [discriminate|].
    injection Hp as <-. injection Hq as <-. fields.
    destruct (Nat.eqb_spec e c) as [->|Hne].
    + rewrite ?Nat.eqb_refl, Eq. cbn [app]. rewrite Eq in *. cbn [length] in *.
      destruct (Nat.ltb_spec (length r) (capacity c)); [|lia].
      do 2 eexists. split; [reflexivity|]. split; [reflexivity|]. repeat split; puts.
    + destruct (Nat.eqb_spec c e); [congruence|]. rewrite Eq.
      destruct (Nat.ltb_spec (length (queue s c)) (capacity c)); [|lia].
      do 2 eexists. split; [reflexivity|]. split; [reflexivity|]. repeat split; puts.
  - destruct (Nat.ltb_spec (length (queue s c)) (capacity c)); [|discriminate].
    injection Hp as <-. injection Hq as <-. fields.
    destruct (Nat.ltb_spec (length (queue s c)) (capacity c)); [|lia].
    do 2 eexists. split; [reflexivity|]. split; [reflexivity|]. repeat split; puts.
  - (* a receive and a send *)
    destruct (Nat.ltb_spec (length (queue s e)) (capacity e)); [|discriminate].
    destruct (queue s c) as [|x r] eqn:Eq; [discriminate|].
    injection Hp as <-. injection Hq as <-. fields.
    destruct (Nat.eqb_spec c e) as [->|Hne].
    + rewrite ?Nat.eqb_refl, Eq. cbn [app]. rewrite Eq in *. cbn [length] in *.
      destruct (Nat.ltb_spec (length r) (capacity e)); [|lia].
      do 2 eexists. split; [reflexivity|]. split; [reflexivity|]. repeat split; puts.
    + destruct (Nat.eqb_spec e c); [congruence|]. rewrite Eq.
      destruct (Nat.ltb_spec (length (queue s e)) (capacity e)); [|lia].
      do 2 eexists. split; [reflexivity|]. split; [reflexivity|]. repeat split; puts.
  - (* two receives, from two channels *)
    assert (c <> e) by congruence.
    destruct (queue s c) as [|x r] eqn:Ec; [discriminate|].
    destruct (queue s e) as [|y t] eqn:Ee; [discriminate|].
    injection Hp as <-. injection Hq as <-. fields.
    destruct (Nat.eqb_spec e c); [congruence|]. destruct (Nat.eqb_spec c e); [congruence|].
    rewrite Ec, Ee. do 2 eexists. split; [reflexivity|]. split; [reflexivity|]. repeat split; puts.
  - destruct (queue s c) as [|x r] eqn:Ec; [discriminate|].
    injection Hp as <-. injection Hq as <-. fields. rewrite Ec.
    do 2 eexists. split; [reflexivity|]. split; [reflexivity|]. repeat split; puts.
  - destruct (Nat.ltb_spec (length (queue s e)) (capacity e)); [|discriminate].
    injection Hp as <-. injection Hq as <-. fields.
    destruct (Nat.ltb_spec (length (queue s e)) (capacity e)); [|lia].
    do 2 eexists. split; [reflexivity|]. split; [reflexivity|]. repeat split; puts.
  - destruct (queue s e) as [|x r] eqn:Ee; [discriminate|].
    injection Hp as <-. injection Hq as <-. fields. rewrite Ee.
    do 2 eexists. split; [reflexivity|]. split; [reflexivity|]. repeat split; puts.
  - injection Hp as <-. injection Hq as <-. fields.
    do 2 eexists. split; [reflexivity|]. split; [reflexivity|]. repeat split; puts.
Qed.

(** A step from anywhere on a run that ends is on a run as long that ends the same. *)
Lemma any_step_first l : forall s t p a, run l s = Some t -> ended t -> step p s = Some a ->
  exists m u, run m a = Some u /\ same t u /\ length l = S (length m).
Proof.
  induction l as [|q l IH]; intros s t p a Hr He Hp; cbn in Hr.
  - injection Hr as <-. rewrite He in Hp. discriminate.
  - destruct (step q s) as [b|] eqn:Eq; [|discriminate].
    destruct (Nat.eq_dec p q) as [->|Hne].
    + rewrite Eq in Hp. injection Hp as ->. exists l, t. split; auto. split; [apply same_refl|auto].
    + destruct (diamond p q s a b Hne Hp Eq) as (c & d & Hc & Hd & E).
      destruct (IH b t p d Hr He Hd) as (m & u & Hm & Eu & Hl).
      destruct (run_same m d c u (same_sym _ _ E) Hm) as (u' & Hu' & Eu').
      exists (q :: m), u'. cbn. rewrite Hc. split; auto. split; [eapply same_trans; eauto|lia].
Qed.

(** If one schedule ends, every other that runs until nothing can go on ends the same, after as many
    steps; none can be longer. *)
Theorem confluence l : forall m s t u, run l s = Some t -> ended t -> run m s = Some u ->
  (ended u -> same t u /\ length l = length m) /\ length m <= length l.
Proof.
  intros m. revert l. induction m as [|p m IH]; intros l s t u Hl Ht Hm; cbn in Hm.
  - injection Hm as <-. split; [|cbn; lia]. intros Hu. destruct l as [|q l]; cbn in Hl.
    + injection Hl as <-. split; [apply same_refl|auto].
    + rewrite Hu in Hl. discriminate.
  - destruct (step p s) as [a|] eqn:Ea; [|discriminate].
    destruct (any_step_first l s t p a Hl Ht Ea) as (l' & t' & Hl' & E & Hlen).
    destruct (IH l' a t' u Hl' (ended_same _ _ E Ht) Hm) as [I1 I2]. split; [|cbn; lia].
    intros Hu. destruct (I1 Hu) as [J1 J2]. split; [eapply same_trans; eauto|cbn; lia].
Qed.

End Confluence.

(** ** What the premises exclude *)

(** Process 0 sends one number on channel 0. Process 1 tries once to receive it, and outputs 1 if it
    did, 0 otherwise. *)
Definition trying (p k : nat) : action nat :=
  match p, k with
  | 0, 0 => Send nat 0 7%Z 1
  | 1, 0 => TryReceive nat 0 (fun o => match o with Some _ => 1 | None => 2 end)
  | 1, 1 => Output nat 1%Z 3
  | 1, 2 => Output nat 0%Z 3
  | _, _ => Done nat
  end.

Definition start : state nat := State nat (fun _ => 0) (fun _ => []) (fun _ => []).

Definition seen (next : nat -> nat -> action nat) (schedule : list nat) (p : nat) : list Z :=
  match run nat next (fun _ => 1) schedule start with
  | Some s => output nat s p
  | None => []
  end.

Definition stops (next : nat -> nat -> action nat) (schedule : list nat) : Prop :=
  exists s, run nat next (fun _ => 1) schedule start = Some s /\ ended nat next (fun _ => 1) s.

Theorem try_breaks :
  stops trying [0; 1; 1] /\ stops trying [1; 0; 1] /\
  seen trying [0; 1; 1] 1 = [1]%Z /\ seen trying [1; 0; 1] 1 = [0]%Z.
Proof.
  repeat split; try (eexists; split; [reflexivity|]; intros [|[|p]]; reflexivity).
Qed.

(** Processes 0 and 1 send on channels 0 and 1; process 2 outputs which of the two it found. *)
Definition selecting (p k : nat) : action nat :=
  match p, k with
  | 0, 0 => Send nat 0 7%Z 1
  | 1, 0 => Send nat 1 8%Z 1
  | 2, 0 => Select nat 0 1 (fun b => if b then 1 else 2)
  | 2, 1 => Output nat 0%Z 3
  | 2, 2 => Output nat 1%Z 3
  | _, _ => Done nat
  end.

Theorem select_breaks :
  stops selecting [0; 2; 1; 2] /\ stops selecting [1; 2; 0; 2] /\
  seen selecting [0; 2; 1; 2] 2 = [0]%Z /\ seen selecting [1; 2; 0; 2] 2 = [1]%Z.
Proof.
  repeat split; try (eexists; split; [reflexivity|]; intros [|[|[|p]]]; reflexivity).
Qed.
