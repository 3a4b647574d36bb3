(* The machine as a transition system over abstract guests, executable.

   A guest is any function [slice]: from the session's memory, the coroutine's own
   state, the answer to its last request and a bound, to the new memory and state,
   the cycles used and a request. The machine has lanes (a clock, a ledger row, a
   ready queue, sleepers, an outbox, credits), sessions (memory, coroutines,
   channels, joiners), frames and waves. Rule numbers are those of
   docs/spec/semantics.md.

   [tick] is one transition. It makes at most one step of one lane; [round] repeats
   it until a step was made: a canonical round (rule 2).

   A step of a lane sees the lane and the sessions that live on it ([mask]) and
   nothing else; what it does to other lanes goes to its outbox (rules 14, 15). *)

From Coq Require Import List Arith NArith Lia Bool.
From Wavelock Require Import Interleave.
From Wavelock Require Groups.
Import ListNotations.
Local Open Scope N_scope.

(* A coroutine: session and slot. Slots are never reused here. *)
Definition cid := (nat * nat)%type.

Definition cid_eqb (a b : cid) : bool := Nat.eqb (fst a) (fst b) && Nat.eqb (snd a) (snd b).

Lemma cid_eqb_spec a b : reflect (a = b) (cid_eqb a b).
Proof.
  destruct a as [a1 a2], b as [b1 b2]. unfold cid_eqb. simpl.
  destruct (Nat.eqb_spec a1 b1), (Nat.eqb_spec a2 b2); simpl; constructor; congruence.
Qed.

Inductive answer := Code (n : N) | Value (n : N).

(* Codes that requests are answered with. *)
Definition OK := Code 0.
Definition DENIED := Code 1.
Definition INVALID := Code 2.
Definition AGAIN := Code 3.
Definition CLOSED := Code 4.

(* What one lane does to another; applied at the wave's end. *)
Inductive effect :=
| Message (owner index : nat) (v : N)
| WaitToSend (owner index : nat) (c : cid) (v : N)
| Wake (c : cid) (a : answer)
| Publish (c : cid).

(* An effect in an outbox, with the lane's step and its number in the wave. *)
Record post := Post { p_step : N; p_seq : N; p_effect : effect }.

Inductive event :=
| EStep (c : cid) (used : N)
| EWoken (c : cid)
| ESpawned (c : cid)
| EEnded (c : cid) (v : N)
| EWave (clock : N)
| ETimers (woken : N)
| EArrival (from owner index : nat)
| EEntered (c : cid) (owner index : nat)
| EClosed (owner index : nat)
| EFrame (n : N)
| ESync (n : N).

Record times := Times { clock : N; charged : N; overhead : N; idle : N }.

Record lane := Lane {
  tm : times;
  current : option cid;
  left : N;                         (* rest of the current coroutine's quantum *)
  last : option cid;
  ready : list cid;
  sleepers : list (N * cid);        (* frame, coroutine; ascending, first come first *)
  outbox : list post;
  credits : list ((nat * nat) * N); (* by channel of another lane: places left in this wave *)
  wave_end : N;
  steps : N;
  log : list event }.

Record chan := Chan {
  capacity : N;
  queue : list N;
  receivers : list nat;             (* slots of the owner that wait to receive *)
  senders : list (cid * N);         (* waiting senders with their messages *)
  wired : list nat;                 (* lanes with a wired sender, ascending *)
  free : N;                         (* what was divided at the last wave's end *)
  closed : bool }.

Record settings := Settings {
  pick_cost : N; switch_cost : N; wake_cost : N; timer_cost : N; inbox_cost : N;
  quantum : N; wave_cycles : N; frame_cycles : N; last_frame : N }.

Inductive outcome := Finished | Deadlock | Frames.

Inductive phase_t :=
| Boundary (next : N)
| InFrame
| InWave (turn : nat)
| Done (o : outcome).

(* ---- Sums over indexed lists ---- *)

Fixpoint sumi {A} (f : nat -> A -> nat) (n : nat) (l : list A) : nat :=
  match l with [] => 0%nat | x :: r => (f n x + sumi f (S n) r)%nat end.

Lemma sumi_upd {A} (f : nat -> A -> nat) l : forall n i x y,
  nth_error l i = Some x ->
  (sumi f n (upd i y l) + f (n + i) x = sumi f n l + f (n + i) y)%nat.
Proof.
  induction l as [|a l IH]; intros n i x y H; destruct i; simpl in *; try discriminate.
  - injection H as ->. rewrite Nat.add_0_r. lia.
  - specialize (IH (S n) i x y H). rewrite Nat.add_succ_r. simpl in IH. lia.
Qed.

Lemma sumi_ext {A} (f g : nat -> A -> nat) l : forall n,
  (forall i x, nth_error l i = Some x -> f (n + i)%nat x = g (n + i)%nat x) ->
  sumi f n l = sumi g n l.
Proof.
  induction l as [|a l IH]; intros n H; simpl; auto.
  rewrite (IH (S n)).
  - specialize (H 0%nat a eq_refl). rewrite Nat.add_0_r in H. lia.
  - intros i x Hi. specialize (H (S i) x Hi). rewrite Nat.add_succ_r in H. auto.
Qed.

Lemma sumi_app {A} (f : nat -> A -> nat) l : forall n m,
  sumi f n (l ++ m) = (sumi f n l + sumi f (n + length l) m)%nat.
Proof.
  induction l as [|a l IH]; intros n m; simpl.
  - rewrite Nat.add_0_r. auto.
  - rewrite IH. rewrite <- Nat.add_succ_comm. lia.
Qed.

Definition eqc (c d : cid) : nat := if cid_eqb c d then 1 else 0.

Fixpoint count (c : cid) (l : list cid) : nat :=
  match l with [] => 0%nat | d :: r => (eqc c d + count c r)%nat end.

Lemma count_app c l m : count c (l ++ m) = (count c l + count c m)%nat.
Proof. induction l; simpl; lia. Qed.

Definition counto (c : cid) (o : option cid) : nat :=
  match o with Some d => eqc c d | None => 0%nat end.

(* ---- Lanes ---- *)

Definition set_tm t l := Lane t (current l) (left l) (last l) (ready l) (sleepers l)
  (outbox l) (credits l) (wave_end l) (steps l) (log l).
Definition set_run c q p l := Lane (tm l) c q p (ready l) (sleepers l)
  (outbox l) (credits l) (wave_end l) (steps l) (log l).
Definition set_ready r l := Lane (tm l) (current l) (left l) (last l) r (sleepers l)
  (outbox l) (credits l) (wave_end l) (steps l) (log l).
Definition set_sleepers s l := Lane (tm l) (current l) (left l) (last l) (ready l) s
  (outbox l) (credits l) (wave_end l) (steps l) (log l).
Definition set_outbox o l := Lane (tm l) (current l) (left l) (last l) (ready l) (sleepers l)
  o (credits l) (wave_end l) (steps l) (log l).
Definition set_credits c l := Lane (tm l) (current l) (left l) (last l) (ready l) (sleepers l)
  (outbox l) c (wave_end l) (steps l) (log l).
Definition set_wave_end e l := Lane (tm l) (current l) (left l) (last l) (ready l) (sleepers l)
  (outbox l) (credits l) e (steps l) (log l).
Definition set_steps n l := Lane (tm l) (current l) (left l) (last l) (ready l) (sleepers l)
  (outbox l) (credits l) (wave_end l) n (log l).
Definition set_log g l := Lane (tm l) (current l) (left l) (last l) (ready l) (sleepers l)
  (outbox l) (credits l) (wave_end l) (steps l) g.

Definition now (l : lane) : N := clock (tm l).

Definition book (n : N) (l : lane) : lane :=
  set_tm (Times (clock (tm l) + n) (charged (tm l)) (overhead (tm l) + n) (idle (tm l))) l.
Definition charge (n : N) (l : lane) : lane :=
  set_tm (Times (clock (tm l) + n) (charged (tm l) + n) (overhead (tm l)) (idle (tm l))) l.
Definition idle_to (t : N) (l : lane) : lane :=
  let d := t - now l in
  set_tm (Times (clock (tm l) + d) (charged (tm l)) (overhead (tm l)) (idle (tm l) + d)) l.

Definition note (e : event) (l : lane) : lane := set_log (log l ++ [e]) l.
Definition enqueue (c : cid) (l : lane) : lane := set_ready (ready l ++ [c]) l.
Definition put_post (e : effect) (l : lane) : lane :=
  set_outbox (outbox l ++ [Post (steps l) (N.of_nat (length (outbox l))) e]) l.

(* It resumes with the rest of its quantum, or goes to the tail if none is left. *)
Definition keep (c : cid) (l : lane) : lane :=
  if left l =? 0 then enqueue c l else set_run (Some c) (left l) (last l) l.

Fixpoint insert_sleeper (f : N) (c : cid) (l : list (N * cid)) : list (N * cid) :=
  match l with
  | [] => [(f, c)]
  | (g, d) :: r => if g <=? f then (g, d) :: insert_sleeper f c r else (f, c) :: (g, d) :: r
  end.

Definition effect_cid (e : effect) : list cid :=
  match e with
  | Message _ _ _ => []
  | WaitToSend _ _ c _ => [c]
  | Wake c _ => [c]
  | Publish c => [c]
  end.

Definition lane_occ (c : cid) (l : lane) : nat :=
  (counto c (current l) + count c (ready l) + count c (map snd (sleepers l))
   + count c (flat_map (fun p => effect_cid (p_effect p)) (outbox l)))%nat.

Definition conserved (l : lane) : Prop :=
  clock (tm l) = charged (tm l) + overhead (tm l) + idle (tm l).

(* The share of [me] when [free] places are divided among [lanes] in wave [wave]:
   evenly, the remainder from lane (wave mod machine lanes) on (rule 27). *)
Fixpoint index_of (x : nat) (l : list nat) : option nat :=
  match l with
  | [] => None
  | y :: r => if Nat.eqb x y then Some 0%nat else option_map S (index_of x r)
  end.

Definition share (fr : N) (lanes : list nat) (me : nat) (wave : N) (machine : nat) : N :=
  match index_of me lanes with
  | None => 0
  | Some i =>
      let n := length lanes in
      let start := N.to_nat (wave mod N.of_nat (Nat.max machine 1)) in
      let first := length (filter (fun l => Nat.ltb l start) lanes) in
      let place := Nat.modulo (i + n - Nat.modulo first n) n in
      fr / N.of_nat n + (if N.of_nat place <? fr mod N.of_nat n then 1 else 0)
  end.

(* ---- Channels ---- *)

Definition room (ch : chan) : N := capacity ch - N.of_nat (length (queue ch)).

Definition local_room (ch : chan) (home : nat) (wave : N) (machine : nat) : N :=
  match wired ch with
  | [] => room ch
  | _ => room ch - (free ch - share (free ch) (wired ch) home wave machine)
  end.

Definition set_queue q ch := Chan (capacity ch) q (receivers ch) (senders ch) (wired ch)
  (free ch) (closed ch).
Definition set_receivers r ch := Chan (capacity ch) (queue ch) r (senders ch) (wired ch)
  (free ch) (closed ch).
Definition set_senders s ch := Chan (capacity ch) (queue ch) (receivers ch) s (wired ch)
  (free ch) (closed ch).
Definition set_free f ch := Chan (capacity ch) (queue ch) (receivers ch) (senders ch) (wired ch)
  f (closed ch).
Definition set_closed b ch := Chan (capacity ch) (queue ch) (receivers ch) (senders ch) (wired ch)
  (free ch) b.

(* A message goes to the first waiting receiver, or to the queue. *)
Definition deliver (v : N) (ch : chan) : chan * option nat :=
  match receivers ch with
  | r :: rest => (set_receivers rest ch, Some r)
  | [] => (set_queue (queue ch ++ [v]) ch, None)
  end.

Definition chan_occ (i : nat) (c : cid) (ch : chan) : nat :=
  (count c (map (pair i) (receivers ch)) + count c (map fst (senders ch)))%nat.

Section Machine.

(* Memory of a session, and a coroutine's own state. *)
Variables mem co : Type.

Inductive request :=
| Preempted
| Yield
| Sleep (frames : N)
| Send (owner index : nat) (v : N)
| TrySend (owner index : nat) (v : N)
| Recv (index : nat)
| TryRecv (index : nat)
| Spawn (child : co) (lane : nat)
| Join (slot : nat)
| CloseChannel (index : nat)
| Finish (v : N).

Record slice_result := Result {
  r_mem : mem; r_co : co; r_used : N; r_request : request }.

Variable slice : mem -> co -> option answer -> N -> slice_result.

(* The policy: which of the ready coroutines is picked. *)
Variable choose : list cid -> nat.

Variable cfg : settings.

Record coro := Coro { co_state : co; co_lane : nat; co_answer : option answer }.

Record session := Session {
  s_mem : mem;
  s_cos : list (option coro);       (* by slot; [None]: ended *)
  s_chans : list chan;
  s_joins : list (nat * nat) }.     (* target slot, waiting slot *)

Definition set_mem m s := Session m (s_cos s) (s_chans s) (s_joins s).
Definition set_cos x s := Session (s_mem s) x (s_chans s) (s_joins s).
Definition set_chans x s := Session (s_mem s) (s_cos s) x (s_joins s).
Definition set_joins x s := Session (s_mem s) (s_cos s) (s_chans s) x.

Definition coro_at (s : session) (slot : nat) : option coro :=
  match nth_error (s_cos s) slot with Some o => o | None => None end.

Definition give (slot : nat) (a : answer) (s : session) : session :=
  match coro_at s slot with
  | Some x => set_cos (upd slot (Some (Coro (co_state x) (co_lane x) (Some a))) (s_cos s)) s
  | None => s
  end.

Definition sess_occ (c : cid) (i : nat) (s : session) : nat :=
  (sumi (fun _ ch => chan_occ i c ch) 0 (s_chans s)
   + count c (map (fun j => (i, snd j)) (s_joins s)))%nat.

Definition sess_live (c : cid) (i : nat) (s : session) : nat :=
  if Nat.eqb (fst c) i then match coro_at s (snd c) with Some _ => 1%nat | None => 0%nat end
  else 0%nat.

(* ---- A lane's view: the sessions that live on it ---- *)

Definition view := list (option session).

Definition vget (v : view) (i : nat) : option session :=
  match nth_error v i with Some o => o | None => None end.

Definition vset (v : view) (i : nat) (s : session) : view := upd i (Some s) v.

(* What is constant during a wave. *)
Record env := Env {
  e_lanes : nat;                    (* lanes of the machine *)
  e_homes : list (list nat);        (* by session: its lanes, the home lane first *)
  e_frame : N;
  e_wave : N }.

Definition home (h : list (list nat)) (i : nat) : nat := hd 0%nat (nth i h []).
Definition lives_on (h : list (list nat)) (me i : nat) : bool :=
  existsb (Nat.eqb me) (nth i h []).

Definition local_state := (lane * view)%type.

Definition on_lane (f : lane -> lane) (x : local_state) : local_state := (f (fst x), snd x).

(* Ends a wait of [c], which is in no queue any more: at once on its own lane, by
   the inbox on another. *)
Definition wake (me : nat) (c : cid) (a : answer) (x : local_state) : local_state :=
  match vget (snd x) (fst c) with
  | Some s =>
      match coro_at s (snd c) with
      | Some q =>
          if Nat.eqb (co_lane q) me then
            (note (EWoken c) (enqueue c (book (wake_cost cfg) (fst x))),
             vset (snd x) (fst c) (give (snd c) a s))
          else on_lane (put_post (Wake c a)) x
      | None => on_lane (put_post (Wake c a)) x
      end
  | None => on_lane (put_post (Wake c a)) x
  end.

(* The request of [c] is answered and [c] resumes. *)
Definition resume (c : cid) (a : answer) (x : local_state) : local_state :=
  match vget (snd x) (fst c) with
  | Some s => (keep c (fst x), vset (snd x) (fst c) (give (snd c) a s))
  | None => (keep c (fst x), snd x)
  end.

Definition wake_receiver (me o : nat) (r : option nat) (v : N) (x : local_state) : local_state :=
  match r with Some slot => wake me (o, slot) (Value v) x | None => x end.

(* A send to a channel of this lane, or of the sender's own session. *)
Definition send_here (e : env) (me : nat) (c : cid) (o k : nat) (v : N) (wait : bool)
  (so : session) (x : local_state) : local_state :=
  match nth_error (s_chans so) k with
  | None => resume c INVALID x
  | Some ch =>
      if closed ch then resume c CLOSED x
      else if (0 <? local_room ch (home (e_homes e) o) (e_wave e) (e_lanes e))
              && match senders ch with [] => true | _ => false end
      then
        let (ch', r) := deliver v ch in
        let x1 := (fst x, vset (snd x) o (set_chans (upd k ch' (s_chans so)) so)) in
        wake_receiver me o r v (resume c OK x1)
      else if wait then
        (fst x, vset (snd x) o
           (set_chans (upd k (set_senders (senders ch ++ [(c, v)]) ch) (s_chans so)) so))
      else resume c AGAIN x
  end.

Definition credit_eqb (a b : nat * nat) : bool :=
  Nat.eqb (fst a) (fst b) && Nat.eqb (snd a) (snd b).

Fixpoint credit_of (k : nat * nat) (l : list ((nat * nat) * N)) : option N :=
  match l with
  | [] => None
  | (j, n) :: r => if credit_eqb k j then Some n else credit_of k r
  end.

Fixpoint spend (k : nat * nat) (l : list ((nat * nat) * N)) : list ((nat * nat) * N) :=
  match l with
  | [] => []
  | (j, n) :: r => if credit_eqb k j then (j, n - 1) :: r else (j, n) :: spend k r
  end.

(* A send to a channel of another lane: with credit it arrives at the wave's end. *)
Definition send_away (c : cid) (o k : nat) (v : N) (wait : bool) (x : local_state) : local_state :=
  match credit_of (o, k) (credits (fst x)) with
  | None => resume c DENIED x
  | Some n =>
      if 0 <? n then
        resume c OK (on_lane (fun l =>
          put_post (Message o k v) (set_credits (spend (o, k) (credits l)) l)) x)
      else if wait then on_lane (put_post (WaitToSend o k c v)) x
      else resume c AGAIN x
  end.

Definition send (e : env) (me : nat) (c : cid) (o k : nat) (v : N) (wait : bool)
  (x : local_state) : local_state :=
  match vget (snd x) o with
  | Some so =>
      if Nat.eqb o (fst c) || Nat.eqb (home (e_homes e) o) me
      then send_here e me c o k v wait so x
      else send_away c o k v wait x
  | None => send_away c o k v wait x
  end.

(* A receiver made room: the first waiting sender enters, if it is of this lane. *)
Definition admit_here (e : env) (me : nat) (o k : nat) (x : local_state) : local_state :=
  match vget (snd x) o with
  | None => x
  | Some so =>
      match nth_error (s_chans so) k with
      | None => x
      | Some ch =>
          match senders ch with
          | (d, v) :: rest =>
              let is_local := match vget (snd x) (fst d) with
                | Some sd => match coro_at sd (snd d) with
                             | Some q => Nat.eqb (co_lane q) me
                             | None => false
                             end
                | None => false
                end in
              if is_local && (0 <? local_room ch (home (e_homes e) o) (e_wave e) (e_lanes e))
              then
                let (ch', r) := deliver v (set_senders rest ch) in
                wake me d OK (wake_receiver me o r v
                  (fst x, vset (snd x) o (set_chans (upd k ch' (s_chans so)) so)))
              else x
          | [] => x
          end
      end
  end.

Definition receive (e : env) (me : nat) (c : cid) (k : nat) (wait : bool) (x : local_state)
  : local_state :=
  match vget (snd x) (fst c) with
  | None => resume c INVALID x
  | Some s =>
      match nth_error (s_chans s) k with
      | None => resume c INVALID x
      | Some ch =>
          match queue ch with
          | v :: rest =>
              admit_here e me (fst c) k (resume c (Value v)
                (fst x, vset (snd x) (fst c)
                   (set_chans (upd k (set_queue rest ch) (s_chans s)) s)))
          | [] =>
              if closed ch then resume c CLOSED x
              else if wait then
                (fst x, vset (snd x) (fst c)
                   (set_chans (upd k (set_receivers (receivers ch ++ [snd c]) ch)
                                   (s_chans s)) s))
              else resume c AGAIN x
          end
      end
  end.

Fixpoint wake_all (me : nat) (a : answer) (cs : list cid) (x : local_state) : local_state :=
  match cs with [] => x | c :: r => wake_all me a r (wake me c a x) end.

Definition spawn (e : env) (me : nat) (c : cid) (child : co) (to : nat) (x : local_state)
  : local_state :=
  match vget (snd x) (fst c) with
  | Some s =>
      if lives_on (e_homes e) to (fst c) then
        let slot := length (s_cos s) in
        let s1 := set_cos (s_cos s ++ [Some (Coro child to None)]) s in
        let x1 := (note (ESpawned (fst c, slot)) (fst x), vset (snd x) (fst c) s1) in
        resume c (Value (N.of_nat slot))
          (on_lane (if Nat.eqb to me then enqueue (fst c, slot)
                    else put_post (Publish (fst c, slot))) x1)
      else resume c DENIED x
  | None => resume c DENIED x
  end.

Definition join (c : cid) (t : nat) (x : local_state) : local_state :=
  match vget (snd x) (fst c) with
  | Some s =>
      match coro_at s t with
      | Some _ =>
          if Nat.eqb t (snd c) then resume c INVALID x
          else (fst x, vset (snd x) (fst c) (set_joins (s_joins s ++ [(t, snd c)]) s))
      | None => resume c INVALID x
      end
  | None => resume c INVALID x
  end.

(* A channel closes: waiting receivers and senders are answered (rule 28). *)
Definition close (me : nat) (c : cid) (k : nat) (x : local_state) : local_state :=
  match vget (snd x) (fst c) with
  | Some s =>
      match nth_error (s_chans s) k with
      | Some ch =>
          let rs := map (pair (fst c)) (receivers ch) in
          let ss := map fst (senders ch) in
          let ch' := set_closed true (set_receivers [] (set_senders [] ch)) in
          wake_all me CLOSED (rs ++ ss) (resume c OK
            (note (EClosed (fst c) k) (fst x),
             vset (snd x) (fst c) (set_chans (upd k ch' (s_chans s)) s)))
      | None => resume c INVALID x
      end
  | None => resume c INVALID x
  end.

Definition finish (me : nat) (c : cid) (v : N) (x : local_state) : local_state :=
  match vget (snd x) (fst c) with
  | Some s =>
      let mine := filter (fun j => Nat.eqb (fst j) (snd c)) (s_joins s) in
      let rest := filter (fun j => negb (Nat.eqb (fst j) (snd c))) (s_joins s) in
      wake_all me (Value v) (map (fun j => (fst c, snd j)) mine)
        (note (EEnded c v) (fst x),
         vset (snd x) (fst c) (set_joins rest (set_cos (upd (snd c) None (s_cos s)) s)))
  | None => (keep c (fst x), snd x)
  end.

(* What a request does to the coroutine [c], which has left the lane. *)
Definition serve (e : env) (me : nat) (c : cid) (r : request) (x : local_state) : local_state :=
  match r with
  | Preempted => on_lane (keep c) x
  | Yield => on_lane (enqueue c) x
  | Sleep n =>
      if n =? 0 then on_lane (enqueue c) x
      else on_lane (fun l => set_sleepers (insert_sleeper (e_frame e + n) c (sleepers l)) l) x
  | Send o k v => send e me c o k v true x
  | TrySend o k v => send e me c o k v false x
  | Recv k => receive e me c k true x
  | TryRecv k => receive e me c k false x
  | Spawn child to => spawn e me c child to x
  | Join t => join c t x
  | CloseChannel k => close me c k x
  | Finish v => finish me c v x
  end.

(* The slice of the current coroutine [c]. *)
Definition run_slice (e : env) (me : nat) (c : cid) (l : lane) (v : view) : bool * local_state :=
  match vget v (fst c) with
  | None => (false, (l, v))
  | Some s =>
      match coro_at s (snd c) with
      | None => (false, (l, v))
      | Some q =>
          let bound := N.min (left l) (wave_end l - now l) in
          let r := slice (s_mem s) (co_state q) (co_answer q) bound in
          let l1 := note (EStep c (r_used r)) (set_steps (steps l + 1)
                      (set_run None (left l - r_used r) (Some c) (charge (r_used r) l))) in
          let s1 := set_mem (r_mem r)
                      (set_cos (upd (snd c) (Some (Coro (r_co r) (co_lane q) None)) (s_cos s)) s) in
          (true, serve e me c (r_request r) (l1, vset v (fst c) s1))
      end
  end.

(* The pick: the policy's choice, the first if it names none. *)
Definition take_ready (l : list cid) : option (cid * list cid) :=
  match l with
  | [] => None
  | d :: r =>
      let n := choose l in
      match nth_error l n with
      | Some c => Some (c, firstn n l ++ skipn (S n) l)
      | None => Some (d, r)
      end
  end.

Definition same_cid (a : option cid) (c : cid) : bool :=
  match a with Some d => cid_eqb c d | None => false end.

(* One step of a lane: dispatch, one slice, commit. [false]: nothing left to run in
   this wave; a pick whose cost reaches the wave's end is kept for the next wave. *)
Definition lane_step (e : env) (me : nat) (l : lane) (v : view) : bool * local_state :=
  if wave_end l <=? now l then (false, (l, v))
  else
    match current l with
    | Some c => run_slice e me c l v
    | None =>
        match take_ready (ready l) with
        | None => (false, (l, v))
        | Some (c, rest) =>
            let cost := pick_cost cfg + (if same_cid (last l) c then 0 else switch_cost cfg) in
            let l1 := book cost (set_run (Some c) (quantum cfg) (last l) (set_ready rest l)) in
            if wave_end l1 <=? now l1 then (false, (l1, v))
            else run_slice e me c l1 v
        end
    end.

(* ---- The machine ---- *)

Record state := State {
  lanes : list lane;
  sessions : list session;
  homes : list (list nat);
  frame : N;
  wave : N;
  phase : phase_t;
  history : list event }.           (* events of the waves that have ended *)

Definition set_lanes x st := State x (sessions st) (homes st) (frame st) (wave st)
  (phase st) (history st).
Definition set_sessions x st := State (lanes st) x (homes st) (frame st) (wave st)
  (phase st) (history st).
Definition set_phase x st := State (lanes st) (sessions st) (homes st) (frame st) (wave st)
  x (history st).
Definition set_frame x st := State (lanes st) (sessions st) (homes st) x (wave st)
  (phase st) (history st).
Definition set_wave x st := State (lanes st) (sessions st) (homes st) (frame st) x
  (phase st) (history st).
Definition set_history x st := State (lanes st) (sessions st) (homes st) (frame st) (wave st)
  (phase st) x.

Definition env_of (st : state) : env :=
  Env (length (lanes st)) (homes st) (frame st) (wave st).

Definition mask : (nat -> bool) -> nat -> list session -> view := Groups.mask.
Definition merge : (nat -> bool) -> nat -> view -> list session -> list session := Groups.merge.

(* A step of lane [me] that sees the sessions [vis]. *)
Definition step_seeing (vis : nat -> bool) (me : nat) (st : state) : bool * state :=
  match nth_error (lanes st) me with
  | None => (false, st)
  | Some l =>
      let '(b, (l', v')) := lane_step (env_of st) me l (mask vis 0 (sessions st)) in
      (b, set_sessions (merge vis 0 v' (sessions st)) (set_lanes (upd me l' (lanes st)) st))
  end.

(* A step of a lane sees the sessions that live on it. *)
Definition step (me : nat) (st : state) : bool * state :=
  step_seeing (lives_on (homes st) me) me st.

(* ---- The wave's end ---- *)

Definition latest (ls : list lane) : N := fold_left (fun m l => N.max m (now l)) ls 0.

Definition lane_of (st : state) (c : cid) : nat :=
  match nth_error (sessions st) (fst c) with
  | Some s => match coro_at s (snd c) with
              | Some q => if Nat.ltb (co_lane q) (length (lanes st)) then co_lane q else 0%nat
              | None => 0%nat
              end
  | None => 0%nat
  end.

Definition home_of (st : state) (o : nat) : nat :=
  if Nat.ltb (home (homes st) o) (length (lanes st)) then home (homes st) o else 0%nat.

Definition on_lane_at (i : nat) (f : lane -> lane) (st : state) : state :=
  match nth_error (lanes st) i with
  | Some l => set_lanes (upd i (f l) (lanes st)) st
  | None => st
  end.

Definition on_session_at (i : nat) (f : session -> session) (st : state) : state :=
  match nth_error (sessions st) i with
  | Some s => set_sessions (upd i (f s) (sessions st)) st
  | None => st
  end.

(* Between waves a wait on any lane can be ended. *)
Definition wake_across (c : cid) (a : answer) (st : state) : state :=
  on_session_at (fst c) (give (snd c) a)
    (on_lane_at (lane_of st c)
       (fun l => note (EWoken c) (enqueue c (book (wake_cost cfg) l))) st).

Definition accept (i : nat) (st : state) : state := on_lane_at i (book (inbox_cost cfg)) st.

Definition deliver_across (o k : nat) (v : N) (st : state) : state :=
  match nth_error (sessions st) o with
  | None => st
  | Some s =>
      match nth_error (s_chans s) k with
      | None => st
      | Some ch =>
          let (ch', r) := deliver v ch in
          let st1 := set_sessions
            (upd o (set_chans (upd k ch' (s_chans s)) s) (sessions st)) st in
          match r with
          | Some slot => wake_across (o, slot) (Value v) st1
          | None => st1
          end
      end
  end.

Definition chan_at (st : state) (o k : nat) : option chan :=
  match nth_error (sessions st) o with
  | Some s => nth_error (s_chans s) k
  | None => None
  end.

Definition set_chan_at (o k : nat) (ch : chan) (st : state) : state :=
  on_session_at o (fun s => set_chans (upd k ch (s_chans s)) s) st.

Definition apply_effect (from : nat) (e : effect) (st : state) : state :=
  match e with
  | Message o k v =>
      let st1 := accept (home_of st o) st in
      match chan_at st o k with
      | Some ch =>
          if closed ch then st1
          else deliver_across o k v (on_lane_at (home_of st o) (note (EArrival from o k)) st1)
      | None => st1
      end
  | WaitToSend o k c v =>
      let st1 := accept (home_of st o) st in
      match chan_at st o k with
      | Some ch =>
          if closed ch then wake_across c CLOSED st1
          else set_chan_at o k (set_senders (senders ch ++ [(c, v)]) ch) st1
      | None => wake_across c INVALID st1
      end
  | Wake c a => wake_across c a (accept (lane_of st c) st)
  | Publish c => on_lane_at (lane_of st c) (enqueue c) (accept (lane_of st c) st)
  end.

Fixpoint apply_all (es : list (nat * effect)) (st : state) : state :=
  match es with [] => st | (from, e) :: r => apply_all r (apply_effect from e st) end.

(* Waiting senders enter while there is room, first come, first served. *)
Fixpoint admit_across (n : nat) (o k : nat) (st : state) : state :=
  match n with
  | O => st
  | S n =>
      match chan_at st o k with
      | None => st
      | Some ch =>
          match senders ch with
          | (c, v) :: rest =>
              if 0 <? room ch then
                admit_across n o k (wake_across c OK (deliver_across o k v
                  (on_lane_at (home_of st o) (note (EEntered c o k))
                     (set_chan_at o k (set_senders rest ch) st))))
              else st
          | [] => st
          end
      end
  end.

(* The free space is divided among the lanes with a wired sender. *)
Definition give_credit (o k : nat) (ch : chan) (i : nat) (st : state) : state :=
  if Nat.eqb i (home (homes st) o) then st
  else on_lane_at i (fun l => set_credits
    (((o, k), share (room ch) (wired ch) i (wave st) (length (lanes st))) :: credits l) l) st.

Definition divide (o k : nat) (st : state) : state :=
  match chan_at st o k with
  | None => st
  | Some ch =>
      fold_left (fun st i => give_credit o k ch i st) (wired ch)
        (set_chan_at o k (set_free (room ch) ch) st)
  end.

Definition channels_of (ss : list session) : list (nat * nat) :=
  flat_map (fun p => map (pair (fst p)) (seq 0 (length (s_chans (snd p)))))
    (combine (seq 0 (length ss)) ss).

Definition settle_channel (st : state) (ok : nat * nat) : state :=
  let n := match chan_at st (fst ok) (snd ok) with
           | Some ch => length (senders ch) | None => 0%nat end in
  divide (fst ok) (snd ok) (admit_across n (fst ok) (snd ok) st).

(* Effects in canonical order: sending lane, lane-local step, sequence. *)
Definition lane_effects (i : nat) (l : lane) : list (nat * effect) :=
  map (fun p => (i, p_effect p)) (outbox l).

Fixpoint effects_from (i : nat) (ls : list lane) : list (nat * effect) :=
  match ls with [] => [] | l :: r => lane_effects i l ++ effects_from (S i) r end.

(* The wave's end, when the effects [es] are applied in this order: clocks align to the
   latest, unused credits lapse, effects, waiting senders, division of free space. *)
Definition close_with (es : list (nat * effect)) (st : state) : state :=
  let t := latest (lanes st) in
  let st1 := set_lanes (map (fun l => set_credits [] (set_outbox [] (idle_to t l))) (lanes st))
               (set_wave (wave st + 1) st) in
  let st2 := apply_all es st1 in
  let st3 := fold_left settle_channel (channels_of (sessions st2)) st2 in
  set_phase InFrame
    (set_history (history st3 ++ flat_map log (lanes st3))
       (set_lanes (map (set_log []) (lanes st3)) st3)).

Definition close_wave (st : state) : state := close_with (effects_from 0 (lanes st)) st.

(* ---- Frames ---- *)

Definition has_work (l : lane) : bool :=
  match current l, ready l with None, [] => false | _, _ => true end.

Definition frame_end (st : state) : N := (frame st + 1) * frame_cycles cfg.

Definition is_over (s : session) : bool :=
  forallb (fun o => match o with Some _ => false | None => true end) (s_cos s).

Definition begin_wave (st : state) : state :=
  let e := N.min (latest (lanes st) + wave_cycles cfg) (frame_end st) in
  set_phase (InWave 0)
    (set_lanes (map (fun l =>
       if has_work l then note (EWave (now l)) (set_wave_end e l) else l) (lanes st)) st).

(* Sleepers due in frame [f], each at the cost of one timer. *)
Fixpoint wake_due (f : N) (ss : list (N * cid)) (l : lane) : lane :=
  match ss with
  | (g, c) :: r => if g <=? f then wake_due f r (enqueue c (book (timer_cost cfg) l))
                   else set_sleepers ss l
  | [] => set_sleepers [] l
  end.

Definition begin_frame (f : N) (l : lane) : lane :=
  let l1 := idle_to (f * frame_cycles cfg) l in
  let n := length (filter (fun s => fst s <=? f) (sleepers l)) in
  let l2 := wake_due f (sleepers l1) (set_sleepers [] l1) in
  if Nat.eqb n 0 then l2 else note (ETimers (N.of_nat n)) l2.

Definition enter (next : N) (st : state) : state :=
  set_phase InFrame
    (set_history (history st ++ [EFrame next])
       (set_frame next
          (set_lanes (map (fun l => if next =? 0 then l else begin_frame next l) (lanes st)) st))).

Definition next_sleeper (st : state) : option N :=
  fold_left (fun m l => match sleepers l with
                        | (f, _) :: _ => match m with Some g => Some (N.min f g) | None => Some f
                            end
                        | [] => m
                        end) (lanes st) None.

Definition next_frame (st : state) : state :=
  let any := existsb has_work (lanes st) in
  if last_frame cfg <=? frame st then set_phase (Done Frames) st
  else
    let next := if any then frame st + 1
                else match next_sleeper st with
                     | Some f => N.max f (frame st + 1)
                     | None => frame st + 1
                     end in
    set_phase (Boundary (N.min next (last_frame cfg)))
      (set_history (history st ++ [ESync (frame st)])
         (set_lanes (map (idle_to (frame_end st)) (lanes st)) st)).

(* One transition; [true] if it was a step of a lane. *)
Definition tick (st : state) : bool * state :=
  match phase st with
  | Done _ => (false, st)
  | Boundary next => (false, enter next st)
  | InFrame =>
      if forallb is_over (sessions st) then (false, set_phase (Done Finished) st)
      else if existsb has_work (lanes st) && (latest (lanes st) <? frame_end st)
      then (false, begin_wave st)
      else if negb (existsb has_work (lanes st))
              && match next_sleeper st with None => true | Some _ => false end
      then (false, set_phase (Done Deadlock) st)
      else (false, next_frame st)
  | InWave turn =>
      if Nat.ltb turn (length (lanes st)) then
        let (b, st') := step turn st in
        if b then (true, st') else (false, set_phase (InWave (S turn)) st')
      else (false, close_wave st)
  end.

Definition is_done (st : state) : bool :=
  match phase st with Done _ => true | _ => false end.

(* A canonical round: transitions until a step was made or the run is over; [None]
   if [fuel] transitions do not suffice. *)
Fixpoint round (fuel : nat) (st : state) : option (bool * state) :=
  match fuel with
  | O => None
  | S n =>
      if is_done st then Some (false, st)
      else match tick st with
           | (true, st') => Some (true, st')
           | (false, st') => round n st'
           end
  end.

Fixpoint run (fuel : nat) (st : state) : state :=
  match fuel with O => st | S n => run n (snd (tick st)) end.

(* ---- The start ---- *)

(* A session of the manifest: its memory and first coroutine, its lanes with the home
   lane first, its channels with their capacity and the lanes wired to them. *)
Record program := Program {
  g_mem : mem; g_co : co; g_lanes : list nat; g_chans : list (N * list nat) }.

Definition first_session (p : program) : session :=
  Session (g_mem p) [Some (Coro (g_co p) (hd 0%nat (g_lanes p)) None)]
    (map (fun c => Chan (fst c) [] [] [] (snd c) 0 false) (g_chans p)) [].

Definition empty_lane : lane := Lane (Times 0 0 0 0) None 0 None [] [] [] [] 0 0 [].

Definition load (nl : nat) (ps : list program) : state :=
  State (repeat empty_lane nl) (map first_session ps) (map g_lanes ps) 0 0 (Boundary 0) [].

Definition publish (st : state) (i : nat) : state :=
  on_lane_at (lane_of st (i, 0%nat)) (enqueue (i, 0%nat)) st.

(* Lanes at clock 0, every first coroutine ready on its home lane, free space divided. *)
Definition boot (nl : nat) (ps : list program) : state :=
  fold_left publish (seq 0 (length ps))
    (fold_left (fun st ok => divide (fst ok) (snd ok) st)
       (channels_of (map first_session ps)) (load nl ps)).

End Machine.
