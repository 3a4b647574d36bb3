(** One lane of the kernel as an executable model, and two invariants of every operation.

    The rules are those of docs/spec/semantics.md (6, 20 to 25, 34 to 36),
    docs/spec/cpu-authority.md (phases B and C) and docs/scheduler.md, in the form that the naive
    model of the kernel's tests gives them (crates/kernel/tests/model): what that model misreads,
    this one does too. All numbers are unbounded integers, so nothing wraps; the ready-set digest,
    which is defined modulo 2^64, reduces explicitly. Data structures are lists and association
    lists.

    A coroutine is identified by its slot. Six places hold slots: the ready queue, the sleepers, the
    blocked, the held, the ended, and the current coroutine. The state of a coroutine is the place
    its slot is in; there is no other record of it. So the placement invariant [Placed] is a
    property of six separate collections and can fail; the theorems show that no operation breaks
    it. The primitives do nothing where they would break it (a second current coroutine, a slot that
    is not live); that no operation relies on this is not proved, only compared with the kernel.

    Main theorems: [step_good], [run_good], [run_placed], [one_place], [run_conserved],
    [row_conserved].

    Elsewhere: who shares a lane under the fair policy ([Fair], [Shares]), several lanes ([Lanes]),
    bounds of the
    policies ([Policies]), refills ([Refill]).
    Not modelled: contexts, deviations, and limits of memory. *)

From Coq Require Import ZArith List Bool Lia Permutation.
From Wavelock Require Import Fair Shares.
Import ListNotations.
Open Scope Z_scope.

(** * Vocabulary *)

(** A reference to a coroutine: slot and generation. *)
Definition reference := (Z * Z)%type.

Definition same_reference (a b : reference) : bool :=
  (fst a =? fst b) && (snd a =? snd b).

Inductive block_reason :=
  ChannelSend | ChannelReceive | Select | Join | Input | Reply | OtherLane | Park | OtherSession.

Definition block_code (r : block_reason) : nat :=
  match r with
  | ChannelSend => 0 | ChannelReceive => 1 | Select => 2 | Join => 3 | Input => 4 | Reply => 5
  | OtherLane => 6 | Park => 7 | OtherSession => 8
  end.

Inductive wake_source :=
  FromChannel | FromJoin | FromInput | FromAnswer | FromSessionEnd | FromTimer | FromRelease
| FromUnpark.

Definition source_code (s : wake_source) : nat :=
  match s with
  | FromChannel => 0 | FromJoin => 1 | FromInput => 2 | FromAnswer => 3 | FromSessionEnd => 4
  | FromTimer => 5 | FromRelease => 6 | FromUnpark => 7
  end.

(** Whether a wake may end a wait. *)
Definition ends (s : wake_source) (r : block_reason) : bool :=
  match s, r with
  | FromChannel, (ChannelSend | ChannelReceive | Select | Reply) => true
  | FromJoin, Join => true
  | FromInput, Input => true
  | FromAnswer, OtherLane => true
  | FromUnpark, Park => true
  | FromSessionEnd, _ => true
  | _, _ => false
  end.

(** Whether a wake mints a progress token. *)
Definition mints (s : wake_source) : bool :=
  match s with FromChannel | FromJoin => true | _ => false end.

Inductive ending := Finish | Fault | Cancel.

Inductive state :=
| Ready
| Running
| Sleeping (until : Z)
| Blocked (reason : block_reason)
| Held (holds : Z)
| Ended (how : ending).

Definition has_ended (s : state) : bool := match s with Ended _ => true | _ => false end.

Inductive outcome :=
| Yielded
| Slept (until : Z)
| Blocks (reason : block_reason)
| OutOfCycles
| Finished
| Faulted.

Inductive stopped := Requeued | Kept | Waiting | IsHeld | HasEnded.

(** What limits a slice, in the order of semantics 25. *)
Inductive limit := FrameEnd | Quantum | WaveEnd.

Inductive decision :=
| Run (who : reference) (bound : Z) (why : limit) (picked switched : bool)
| Idle
| Over.

Inductive refusal :=
| Stale
| NotWaiting (s : state)
| WrongSource (r : block_reason) (s : wake_source)
| InSlice (who : reference)
| NotEnded (s : state)
| IsEnded (s : state)
| NotHeld (reason : Z) (holds : Z)
| NotReady (s : state)
| SlotTaken (by_ : reference)
| HandoffOff
| NoSession
| NotFresh          (** a reference that was given out before *)
| Protocol.         (** a call the driver must not make; the kernel panics *)

Inductive result (A : Type) := Done (a : A) | Refused (r : refusal).
Arguments Done {A}. Arguments Refused {A}.

Inductive policy :=
| Cooperative
| RoundRobin (quantum : Z)
| Fixed (quantum : Z)
| Aging (quantum : Z)
| TokenWeighted (quantum : Z)
| ProgressAware (quantum : Z)
| FairShare (base least : Z) (of_sessions : bool).

Definition two64 : Z := 2 ^ 64.
Definition most : Z := two64 - 1.

(** "No quantum" is the largest number of 64 bits, as in the kernel. *)
Definition quantum_of (p : policy) : Z :=
  match p with
  | Cooperative => most
  | RoundRobin q | Fixed q | Aging q | TokenWeighted q | ProgressAware q => q
  | FairShare base _ _ => base
  end.

Inductive span := Picks (left_ : Z) | Until (end_ : Z).

(** For how long a preferred coroutine may run. *)
Inductive inheritance := Own | Pending | Rest (cycles : Z).

(** * Time: the lane's clock and what it is made of *)

Inductive operation := OPick | OSwitch | OWake | OTimer | OInbox | ORefill | OMigrate | OSteal.

(** One number per scheduler operation: a table of costs, or the overhead row. *)
Record by_operation := ByOperation {
  o_pick : Z; o_switch : Z; o_wake : Z; o_timer : Z;
  o_inbox : Z; o_refill : Z; o_migrate : Z; o_steal : Z }.

Definition of_operation (t : by_operation) (o : operation) : Z :=
  match o with
  | OPick => o_pick t | OSwitch => o_switch t | OWake => o_wake t | OTimer => o_timer t
  | OInbox => o_inbox t | ORefill => o_refill t | OMigrate => o_migrate t | OSteal => o_steal t
  end.

Definition sum_operations (t : by_operation) : Z :=
  o_pick t + o_switch t + o_wake t + o_timer t + o_inbox t + o_refill t + o_migrate t + o_steal t.

Definition add_operation (o : operation) (c : Z) (t : by_operation) : by_operation :=
  let 'ByOperation p s w ti i r m st := t in
  match o with
  | OPick => ByOperation (p + c) s w ti i r m st
  | OSwitch => ByOperation p (s + c) w ti i r m st
  | OWake => ByOperation p s (w + c) ti i r m st
  | OTimer => ByOperation p s w (ti + c) i r m st
  | OInbox => ByOperation p s w ti (i + c) r m st
  | ORefill => ByOperation p s w ti i (r + c) m st
  | OMigrate => ByOperation p s w ti i r (m + c) st
  | OSteal => ByOperation p s w ti i r m (st + c)
  end.

Definition no_operations : by_operation := ByOperation 0 0 0 0 0 0 0 0.

Definition costs_v1 : by_operation := ByOperation 12 24 16 8 16 12 120 60.

Record books := Books { clock : Z; charged : Z; idle : Z; overhead : by_operation }.

Definition overhead_total (b : books) : Z := sum_operations (overhead b).

(** Conservation: every cycle of the clock is charged, overhead or idle. *)
Definition Conserved (b : books) : Prop := charged b + overhead_total b + idle b = clock b.

Definition book_cost (o : operation) (c : Z) (b : books) : books :=
  Books (clock b + c) (charged b) (idle b) (add_operation o c (overhead b)).

Definition charge (used : Z) (b : books) : books :=
  Books (clock b + used) (charged b + used) (idle b) (overhead b).

Definition idle_until (t : Z) (b : books) : books :=
  let missing := Z.max 0 (t - clock b) in
  Books (clock b + missing) (charged b) (idle b + missing) (overhead b).

(** * Records *)

Fixpoint add_nth (n : nat) (l : list Z) : list Z :=
  match l, n with
  | [], _ => []
  | x :: r, O => (x + 1) :: r
  | x :: r, S m => x :: add_nth m r
  end.

Record ledger := Ledger {
  runtime : Z; wait_total : Z; wait_longest : Z; switches : Z; preemptions : Z;
  blocks : list Z; sleeps : Z; migrations : Z; steals : Z }.

Definition empty_ledger : ledger := Ledger 0 0 0 0 0 [0; 0; 0; 0; 0; 0; 0; 0; 0] 0 0 0.

Record coroutine := Coroutine {
  generation : Z;
  tag : Z;
  holds : Z;          (** reasons to hold, one bit each *)
  arrival : Z;        (** when it last joined the tail: the order within a class *)
  since : Z;          (** clock since when it waits to be picked *)
  picks_before : Z;   (** picks of the lane when it last joined the tail *)
  priority : Z;
  tokens : Z;
  came : Z;           (** when it came to the lane: the order within a session *)
  carried : luggage;  (** weight and class, and what fairness remembers under another policy *)
  account : ledger }.

Definition set_holds h c :=
  Coroutine (generation c) (tag c) h (arrival c) (since c) (picks_before c) (priority c) (tokens c)
    (came c) (carried c) (account c).
Definition set_arrival a c :=
  Coroutine (generation c) (tag c) (holds c) a (since c) (picks_before c) (priority c) (tokens c)
    (came c) (carried c) (account c).
Definition set_since s c :=
  Coroutine (generation c) (tag c) (holds c) (arrival c) s (picks_before c) (priority c) (tokens c)
    (came c) (carried c) (account c).
Definition set_picks p c :=
  Coroutine (generation c) (tag c) (holds c) (arrival c) (since c) p (priority c) (tokens c)
    (came c) (carried c) (account c).
Definition set_priority_of p c :=
  Coroutine (generation c) (tag c) (holds c) (arrival c) (since c) (picks_before c) p (tokens c)
    (came c) (carried c) (account c).
Definition set_tokens t c :=
  Coroutine (generation c) (tag c) (holds c) (arrival c) (since c) (picks_before c) (priority c) t
    (came c) (carried c) (account c).
Definition set_account f c :=
  Coroutine (generation c) (tag c) (holds c) (arrival c) (since c) (picks_before c) (priority c)
    (tokens c) (came c) (carried c) (f (account c)).

Definition set_carried g c :=
  Coroutine (generation c) (tag c) (holds c) (arrival c) (since c) (picks_before c) (priority c)
    (tokens c) (came c) g (account c).

Definition add_runtime u a :=
  Ledger (runtime a + u) (wait_total a) (wait_longest a) (switches a) (preemptions a) (blocks a)
    (sleeps a) (migrations a) (steals a).
Definition add_wait w a :=
  Ledger (runtime a) (wait_total a + w) (Z.max (wait_longest a) w) (switches a) (preemptions a)
    (blocks a) (sleeps a) (migrations a) (steals a).
Definition add_switch (n : Z) a :=
  Ledger (runtime a) (wait_total a) (wait_longest a) (switches a + n) (preemptions a) (blocks a)
    (sleeps a) (migrations a) (steals a).
Definition add_preemption a :=
  Ledger (runtime a) (wait_total a) (wait_longest a) (switches a) (preemptions a + 1) (blocks a)
    (sleeps a) (migrations a) (steals a).
Definition add_block r a :=
  Ledger (runtime a) (wait_total a) (wait_longest a) (switches a) (preemptions a)
    (add_nth (block_code r) (blocks a)) (sleeps a) (migrations a) (steals a).
Definition add_sleep a :=
  Ledger (runtime a) (wait_total a) (wait_longest a) (switches a) (preemptions a) (blocks a)
    (sleeps a + 1) (migrations a) (steals a).
Definition add_migration (stolen : bool) a :=
  Ledger (runtime a) (wait_total a) (wait_longest a) (switches a) (preemptions a) (blocks a)
    (sleeps a) (migrations a + 1) (steals a + if stolen then 1 else 0).

(** * Places *)

Record places := Places {
  records : list (Z * coroutine);
  ready : list Z;
  sleeping : list (Z * Z);              (** with the frame *)
  blocked : list (Z * block_reason);
  held : list Z;
  ended : list (Z * ending);
  current : option (Z * Z) }.           (** with the rest of its quantum *)

Definition empty_places : places := Places [] [] [] [] [] [] None.

Inductive place :=
| AtReady
| AtSleeping (until : Z)
| AtBlocked (reason : block_reason)
| AtHeld
| AtEnded (how : ending)
| AtCurrent (rest : Z).

Definition keys (p : places) : list Z := map fst (records p).

Definition current_slot (p : places) : list Z :=
  match current p with Some (s, _) => [s] | None => [] end.

(** Every entry of every place. *)
Definition members (p : places) : list Z :=
  ready p ++ map fst (sleeping p) ++ map fst (blocked p) ++ held p ++ map fst (ended p)
    ++ current_slot p.

(** The placement invariant: the entries of all places together are exactly the live slots, each
    once. *)
Definition Placed (p : places) : Prop := NoDup (keys p) /\ Permutation (members p) (keys p).

Fixpoint lookup {A} (s : Z) (l : list (Z * A)) : option A :=
  match l with
  | [] => None
  | (k, a) :: r => if k =? s then Some a else lookup s r
  end.

Fixpoint memb (s : Z) (l : list Z) : bool :=
  match l with [] => false | k :: r => if k =? s then true else memb s r end.

Definition drop (s : Z) (l : list Z) : list Z := filter (fun k => negb (k =? s)) l.
Definition drop_key {A} (s : Z) (l : list (Z * A)) : list (Z * A) :=
  filter (fun e => negb (fst e =? s)) l.

(** Removes a slot from the place it is in. *)
Definition take_out (s : Z) (p : places) : places :=
  Places (records p) (drop s (ready p)) (drop_key s (sleeping p)) (drop_key s (blocked p))
    (drop s (held p)) (drop_key s (ended p))
    match current p with
    | Some (c, rest) => if c =? s then None else Some (c, rest)
    | None => None
    end.

Definition put_in (s : Z) (to : place) (p : places) : places :=
  let 'Places rs rd sl bl he en cu := p in
  match to with
  | AtReady => Places rs (s :: rd) sl bl he en cu
  | AtSleeping u => Places rs rd ((s, u) :: sl) bl he en cu
  | AtBlocked r => Places rs rd sl ((s, r) :: bl) he en cu
  | AtHeld => Places rs rd sl bl (s :: he) en cu
  | AtEnded e => Places rs rd sl bl he ((s, e) :: en) cu
  | AtCurrent rest => Places rs rd sl bl he en (Some (s, rest))
  end.

Definition is_free (to : place) (p : places) : bool :=
  match to, current p with AtCurrent _, Some _ => false | _, _ => true end.

(** Moves a live slot to a place. A lane has one current coroutine: no second one is accepted. *)
Definition move (s : Z) (to : place) (p : places) : places :=
  if memb s (keys p) then
    let q := take_out s p in
    if is_free to q then put_in s to q else p
  else p.

Definition update (s : Z) (f : coroutine -> coroutine) (p : places) : places :=
  Places (map (fun e => if fst e =? s then (fst e, f (snd e)) else e) (records p))
    (ready p) (sleeping p) (blocked p) (held p) (ended p) (current p).

(** A new record, in a place. *)
Definition insert (s : Z) (c : coroutine) (to : place) (p : places) : places :=
  if memb s (keys p) then p
  else if is_free to p then
    put_in s to (Places ((s, c) :: records p) (ready p) (sleeping p) (blocked p) (held p) (ended p)
                   (current p))
  else p.

(** The record is freed, and its place with it. *)
Definition remove (s : Z) (p : places) : places :=
  let q := take_out s p in
  Places (drop_key s (records q)) (ready q) (sleeping q) (blocked q) (held q) (ended q) (current q).

Definition set_rest (rest : Z) (p : places) : places :=
  Places (records p) (ready p) (sleeping p) (blocked p) (held p) (ended p)
    match current p with Some (s, _) => Some (s, rest) | None => None end.

Definition state_of (s : Z) (p : places) : option state :=
  match lookup s (records p) with
  | None => None
  | Some c =>
      if memb s (ready p) then Some Ready
      else if memb s (current_slot p) then Some Running
      else match lookup s (sleeping p) with
      | Some u => Some (Sleeping u)
      | None => match lookup s (blocked p) with
      | Some r => Some (Blocked r)
      | None => if memb s (held p) then Some (Held (holds c))
      else match lookup s (ended p) with
      | Some e => Some (Ended e)
      | None => None
      end end end
  end.

(** * The lane *)

Record settings := Settings {
  the_policy : policy; frame_cycles : Z; handoff : bool; costs : by_operation }.

(** Totals at the beginning of a frame, for its row. *)
Record mark := Mark { m_charged : Z; m_overhead : Z; m_idle : Z; m_overrun_in : Z }.

Record row := Row {
  r_frame : Z; r_charged : Z; r_overhead : Z; r_idle : Z; r_overrun_in : Z; r_overrun_out : Z }.

(** Everything else. *)
Record control := Control {
  generations : list (Z * Z);           (** the last generation each slot had *)
  wakes : list Z;                       (** by source *)
  picks : Z;
  steps : Z;
  frame : Z;
  frame_mark : mark;
  the_span : span;
  arrivals : Z;
  picked_tokens : Z;                    (** of the current coroutine, when it was picked *)
  in_slice : bool;
  boundary : bool;                      (** a wave or frame began since the last slice *)
  last_ran : option reference;
  preferred : option (reference * inheritance);
  streak : Z;                           (** picks of token holders in a row *)
  the_fair : option shares }.           (** who shares the lane, under the fair policy *)

Definition set_generations v c := Control v (wakes c) (picks c) (steps c) (frame c) (frame_mark c)
  (the_span c) (arrivals c) (picked_tokens c) (in_slice c) (boundary c) (last_ran c) (preferred c)
  (streak c) (the_fair c).
Definition set_wakes v c := Control (generations c) v (picks c) (steps c) (frame c) (frame_mark c)
  (the_span c) (arrivals c) (picked_tokens c) (in_slice c) (boundary c) (last_ran c) (preferred c)
  (streak c) (the_fair c).
Definition set_frame f m c := Control (generations c) (wakes c) (picks c) (steps c) f m
  (the_span c) (arrivals c) (picked_tokens c) (in_slice c) (boundary c) (last_ran c) (preferred c)
  (streak c) (the_fair c).
Definition set_span v c := Control (generations c) (wakes c) (picks c) (steps c) (frame c)
  (frame_mark c) v (arrivals c) (picked_tokens c) (in_slice c) (boundary c) (last_ran c)
  (preferred c) (streak c) (the_fair c).
Definition set_arrivals v c := Control (generations c) (wakes c) (picks c) (steps c) (frame c)
  (frame_mark c) (the_span c) v (picked_tokens c) (in_slice c) (boundary c) (last_ran c)
  (preferred c) (streak c) (the_fair c).
Definition set_in_slice v c := Control (generations c) (wakes c) (picks c) (steps c) (frame c)
  (frame_mark c) (the_span c) (arrivals c) (picked_tokens c) v (boundary c) (last_ran c)
  (preferred c) (streak c) (the_fair c).
Definition set_boundary v c := Control (generations c) (wakes c) (picks c) (steps c) (frame c)
  (frame_mark c) (the_span c) (arrivals c) (picked_tokens c) (in_slice c) v (last_ran c)
  (preferred c) (streak c) (the_fair c).
Definition set_preferred v c := Control (generations c) (wakes c) (picks c) (steps c) (frame c)
  (frame_mark c) (the_span c) (arrivals c) (picked_tokens c) (in_slice c) (boundary c) (last_ran c)
  v (streak c) (the_fair c).
Definition set_streak v c := Control (generations c) (wakes c) (picks c) (steps c) (frame c)
  (frame_mark c) (the_span c) (arrivals c) (picked_tokens c) (in_slice c) (boundary c) (last_ran c)
  (preferred c) v (the_fair c).
Definition set_fair v c := Control (generations c) (wakes c) (picks c) (steps c) (frame c)
  (frame_mark c) (the_span c) (arrivals c) (picked_tokens c) (in_slice c) (boundary c) (last_ran c)
  (preferred c) (streak c) v.
(** A pick: the count, the tokens the picked one had, who runs, the streak. *)
Definition count_pick t r s c := Control (generations c) (wakes c) (picks c + 1) (steps c) (frame c)
  (frame_mark c) (the_span c) (arrivals c) t (in_slice c) (boundary c) (Some r) (preferred c) s
  (the_fair c).
Definition begin_slice sp c := Control (generations c) (wakes c) (picks c) (steps c + 1) (frame c)
  (frame_mark c) sp (arrivals c) (picked_tokens c) true (boundary c) (last_ran c)
  (preferred c) (streak c) (the_fair c).

Record lane := Lane { config : settings; time : books; at_ : places; ctl : control }.

Definition new_lane (s : settings) : lane :=
  Lane s (Books 0 0 0 no_operations) empty_places
    (Control [] [0; 0; 0; 0; 0; 0; 0; 0] 0 0 0 (Mark 0 0 0 0) (Picks 0) 0 0 false false None None 0
       match the_policy s with FairShare b m x => Some (new_shares b m x) | _ => None end).

Definition on_time f (l : lane) := Lane (config l) (f (time l)) (at_ l) (ctl l).
Definition on_places f (l : lane) := Lane (config l) (time l) (f (at_ l)) (ctl l).
Definition on_ctl f (l : lane) := Lane (config l) (time l) (at_ l) (f (ctl l)).
Definition with_policy p (l : lane) :=
  Lane (Settings p (frame_cycles (config l)) (handoff (config l)) (costs (config l)))
    (time l) (at_ l) (ctl l).

Definition now (l : lane) : Z := clock (time l).
Definition book (o : operation) (l : lane) : lane :=
  on_time (book_cost o (of_operation (costs (config l)) o)) l.
Definition count_wake (s : wake_source) (l : lane) : lane :=
  on_ctl (fun c => set_wakes (add_nth (source_code s) (wakes c)) c) l.

Definition record_of (l : lane) (s : Z) : option coroutine := lookup s (records (at_ l)).
Definition state_at (l : lane) (s : Z) : option state := state_of s (at_ l).

(** The slot of a reference, unless it is stale. *)
Definition resolve (l : lane) (r : reference) : option coroutine :=
  match record_of l (fst r) with
  | Some c => if generation c =? snd r then Some c else None
  | None => None
  end.

Definition reference_of (l : lane) (s : Z) : reference :=
  (s, match record_of l s with Some c => generation c | None => 0 end).

Definition frame_end (l : lane) : Z := (frame (ctl l) + 1) * frame_cycles (config l).

Definition is_over (l : lane) : bool :=
  match the_span (ctl l) with Picks n => n =? 0 | Until e => e <=? now l end
  || (frame_end l <=? now l).

(** * The pick function: a pure function of the candidates and three numbers *)

Definition candidate := (Z * coroutine)%type.

(** What a policy ranks by before arrival; larger first. *)
Definition rank (p : policy) (picks : Z) (c : coroutine) : Z :=
  match p with
  | Fixed _ => priority c
  | Aging _ => priority c + (picks - picks_before c) / 16
  | TokenWeighted _ => tokens c
  | _ => 0
  end.

(** Whether [a] goes before [b]: by rank, then by arrival. *)
Definition before (p : policy) (picks : Z) (a b : coroutine) : bool :=
  (rank p picks b <? rank p picks a)
  || ((rank p picks a =? rank p picks b) && (arrival a <=? arrival b)).

Fixpoint best (p : policy) (picks : Z) (l : list candidate) : option candidate :=
  match l with
  | [] => None
  | e :: r =>
      match best p picks r with
      | None => Some e
      | Some f => if before p picks (snd e) (snd f) then Some e else Some f
      end
  end.

Definition holds_token (e : candidate) : bool := 0 <? tokens (snd e).

Definition or_else {A} (a b : option A) : option A := match a with Some _ => a | None => b end.

Definition choose (p : policy) (picks streak : Z) (l : list candidate) : option candidate :=
  match p with
  | ProgressAware _ =>
      let holder := best p picks (filter holds_token l) in
      let other := best p picks (filter (fun e => negb (holds_token e)) l) in
      if 8 <=? streak then or_else other holder else or_else holder other
  | _ => best p picks l
  end.

Fixpoint candidates_of (rs : list (Z * coroutine)) (l : list Z) : list candidate :=
  match l with
  | [] => []
  | s :: r =>
      match lookup s rs with
      | Some c => (s, c) :: candidates_of rs r
      | None => candidates_of rs r
      end
  end.

Definition candidates (l : lane) : list candidate :=
  candidates_of (records (at_ l)) (ready (at_ l)).

Definition choice (l : lane) : option candidate :=
  choose (the_policy (config l)) (picks (ctl l)) (streak (ctl l)) (candidates l).

Definition rank_in (l : lane) (c : coroutine) : Z :=
  rank (the_policy (config l)) (picks (ctl l)) c.

(** * Operations *)

Definition upd (s : Z) f (l : lane) : lane := on_places (update s f) l.
Definition mv (s : Z) (to : place) (l : lane) : lane := on_places (move s to) l.

(** An event of the fair policy, under that policy. *)
Definition on_fair (f : shares -> shares) (l : lane) : lane :=
  on_ctl (fun c => set_fair match the_fair c with Some q => Some (f q) | None => None end c) l.

(** The entity leaves for good, because it ended or moves; the record keeps what it carries. *)
Definition leave_fair (s : Z) (has_ended : bool) (l : lane) : lane :=
  match the_fair (ctl l) with
  | Some q =>
      let '(g, q1) := sh_leave s has_ended q in
      upd s (set_carried g) (on_ctl (set_fair (Some q1)) l)
  | None => l
  end.

(** Back to its place in arrival order; or among the held. *)
Definition join_place (s : Z) (e : entry) (l : lane) : lane :=
  match record_of l s with
  | Some c =>
      if holds c =? 0 then on_fair (sh_enter s e) (mv s AtReady (upd s (set_since (now l)) l))
      else mv s AtHeld (on_fair (sh_set_aside s) l)
  | None => l
  end.

(** To the tail; or among the held, with that place in arrival order. *)
Definition new_arrival (s : Z) (l : lane) : lane :=
  let a := arrivals (ctl l) in
  let n := picks (ctl l) in
  upd s (fun c => set_picks n (set_arrival a c)) (on_ctl (set_arrivals (a + 1)) l).

Definition join_tail (s : Z) (e : entry) (l : lane) : lane := join_place s e (new_arrival s l).

Definition book_wait (s : Z) (l : lane) : lane :=
  upd s (fun c => set_account (add_wait (now l - since c)) c) l.

Definition session_of (t : Z) : Z := Z.shiftr t 32.

(** The share of a session that nothing is known of. *)
Definition neutral : luggage := fresh_luggage 1024 2.

(** Whether a reference was never given out. *)
Definition is_fresh (l : lane) (r : reference) : bool :=
  negb (memb (fst r) (keys (at_ l)))
  && match lookup (fst r) (generations (ctl l)) with Some g => g <? snd r | None => true end.

Definition note_generation (r : reference) (l : lane) : lane :=
  on_ctl (fun c => set_generations ((fst r, snd r) :: drop_key (fst r) (generations c)) c) l.

(** [share] is the session's, where it is new on the lane and sessions share it. *)
Definition spawn (l : lane) (r : reference) (t p weight class : Z) (share : luggage)
    : result unit * lane :=
  if is_fresh l r then
    let g := fresh_luggage weight class in
    let c := Coroutine (snd r) t 0 0 0 0 p 0 (arrivals (ctl l)) g empty_ledger in
    (Done tt, join_tail (fst r) New (on_fair (sh_adopt (fst r) (session_of t) g share)
                (on_places (insert (fst r) c AtReady) (note_generation r l))))
  else (Refused NotFresh, l).

(** The current coroutine leaves the lane: the rest of its quantum goes to the coroutine it
    preferred. Nothing left is no handoff. *)
Definition settle_inheritance (l : lane) : lane :=
  match current (at_ l), preferred (ctl l) with
  | Some (_, rest), Some (r, Pending) =>
      on_ctl (set_preferred (if rest =? 0 then None else Some (r, Rest rest))) l
  | _, _ => l
  end.

(** The current coroutine to another place. *)
Definition leave_to (s : Z) (to : place) (l : lane) : lane := mv s to (settle_inheritance l).

Definition limits (l : lane) (quantum : Z) : Z * limit :=
  let f := Z.max 0 (frame_end l - now l) in
  let w := match the_span (ctl l) with Until e => Z.max 0 (e - now l) | Picks _ => most end in
  if (f <=? quantum) && (f <=? w) then (f, FrameEnd)
  else if quantum <=? w then (quantum, Quantum) else (w, WaveEnd).

(** The preemption test at a boundary: by rank alone, never by arrival. *)
Definition prefers_another (l : lane) : bool :=
  match current (at_ l), the_fair (ctl l) with
  | Some _, Some q => sh_prefers_another q
  | Some (s, _), None =>
      match record_of l s, choice l with
      | Some c, Some (_, other) =>
          let mine := match the_policy (config l) with
                      | TokenWeighted _ => picked_tokens (ctl l)
                      | _ => rank_in l c
                      end in
          mine <? rank_in l other
      | _, _ => false
      end
  | None, _ => false
  end.

(** Back to the ready queue, at the arrival it has. *)
Definition back_to_queue (s : Z) (l : lane) : lane :=
  leave_to s AtReady (upd s (set_since (now l)) l).

Definition displace (l : lane) : lane :=
  match current (at_ l) with
  | Some (s, _) => on_fair sh_requeue (back_to_queue s (upd s (set_account add_preemption) l))
  | None => l
  end.

(** The next coroutine and its quantum by class and arrival. *)
Definition pick_plain (l : lane) : option (Z * Z) :=
  let own := quantum_of (the_policy (config l)) in
  let usual := match choice l with Some (s, _) => Some (s, own) | None => None end in
  match preferred (ctl l) with
  | Some (r, inherits) =>
      match resolve l r, choice l with
      | Some c, Some (_, other) =>
          if memb (fst r) (ready (at_ l)) && (rank_in l other <=? rank_in l c)
          then Some (fst r, match inherits with Rest rest => rest | _ => own end)
          else usual
      | _, _ => usual
      end
  | None => usual
  end.

(** The same by the fair queue. *)
Definition pick_fair (l : lane) (q : shares) : option (Z * Z) * shares :=
  let own := quantum_of (the_policy (config l)) in
  let handed :=
    match preferred (ctl l) with
    | Some (r, inherits) =>
        match resolve l r with
        | Some _ =>
            if memb (fst r) (ready (at_ l)) then
              match sh_hand_to (fst r) match inherits with Rest rest => rest | _ => own end q with
              | Some q1 => Some (fst r, q1)
              | None => None
              end
            else None
        | None => None
        end
    | None => None
    end in
  match handed with
  | Some (s, q1) => (Some (s, sh_bound q1), q1)
  | None =>
      match sh_pick q with
      | (Some s, q1) => (Some (s, sh_bound q1), q1)
      | (None, q1) => (None, q1)
      end
  end.

(** A preference is used up by the pick. *)
Definition pick (l : lane) : option (Z * Z) * lane :=
  match the_fair (ctl l) with
  | None => (pick_plain l, on_ctl (set_preferred None) l)
  | Some q =>
      let '(picked, q1) := pick_fair l (sh_mark (now l) q) in
      (picked, on_ctl (fun c => set_fair (Some q1) (set_preferred None c)) l)
  end.

Definition is_switch (l : lane) (r : reference) : bool :=
  match last_ran (ctl l) with Some q => negb (same_reference q r) | None => true end.

Definition make_current (s quantum : Z) (l : lane) : lane :=
  let r := reference_of l s in
  let switched := is_switch l r in
  let l1 := book OPick (book_wait s l) in
  let l2 := if switched then book OSwitch l1 else l1 in
  let t := match record_of l s with Some c => tokens c | None => 0 end in
  let spent c := set_tokens (Z.max 0 (tokens c - 1))
                   (set_account (add_switch (if switched then 1 else 0)) c) in
  let l3 := mv s (AtCurrent quantum) (upd s spent l2) in
  on_ctl (count_pick t r (if 0 <? t then streak (ctl l) + 1 else 0)) l3.

Definition start_slice (picked switched : bool) (l : lane) : decision * lane :=
  match current (at_ l) with
  | Some (s, quantum) =>
      let sp := match the_span (ctl l) with Picks n => Picks (n - 1) | u => u end in
      let '(bound, why) := limits l quantum in
      (Run (reference_of l s) bound why picked switched, on_ctl (begin_slice sp) l)
  | None => (Idle, l)
  end.

Definition dispatch (l : lane) : result decision * lane :=
  if in_slice (ctl l) then (Refused Protocol, l)
  else if is_over l then (Done Over, l)
  else
    let l1 := if boundary (ctl l) && prefers_another l then displace l else l in
    let l2 := on_ctl (set_boundary false) l1 in
    match current (at_ l2) with
    | Some _ =>
        let '(d, l3) := start_slice false false (on_fair (sh_mark (now l2)) l2) in (Done d, l3)
    | None =>
        let '(picked, l3) := pick l2 in
        match picked with
        | None => (Done Idle, l3)
        | Some (s, quantum) =>
            let switched := is_switch l3 (reference_of l3 s) in
            let l4 := make_current s quantum l3 in
            if is_over l4 then (Done Over, on_fair (sh_charge 0 (now l4)) l4)
            else let '(d, l5) := start_slice true switched l4 in (Done d, l5)
        end
    end.

(** Cycles left of the open slice after it has used [used]. *)
Definition left_of (l : lane) (used : Z) : Z :=
  match current (at_ l) with
  | Some (_, quantum) => Z.max 0 (fst (limits l quantum) - used)
  | None => 0
  end.

Definition is_held (l : lane) (s : Z) : bool :=
  match record_of l s with Some c => negb (holds c =? 0) | None => false end.

Definition keep (s : Z) (l : lane) : stopped * lane :=
  if is_held l s then (IsHeld, on_fair (sh_set_aside s) (leave_to s AtHeld l)) else (Kept, l).

Definition requeue (s : Z) (yielded : bool) (l : lane) : stopped * lane :=
  let l1 := upd s (set_since (now l)) (new_arrival s (settle_inheritance l)) in
  let l2 := on_fair (if yielded then sh_yield else sh_requeue) l1 in
  if is_held l2 s then (IsHeld, mv s AtHeld (on_fair (sh_set_aside s) l2))
  else (Requeued, mv s AtReady l2).

Definition fall_asleep (s until : Z) (l : lane) : stopped * lane :=
  let l1 := on_fair (sh_rest s) (upd s (set_account add_sleep) (settle_inheritance l)) in
  let a := arrivals (ctl l1) in
  (Waiting, mv s (AtSleeping until) (upd s (set_arrival a) (on_ctl (set_arrivals (a + 1)) l1))).

Definition block (s : Z) (r : block_reason) (l : lane) : stopped * lane :=
  (Waiting, on_fair (sh_rest s) (leave_to s (AtBlocked r) (upd s (set_account (add_block r)) l))).

Definition finish (s : Z) (e : ending) (l : lane) : stopped * lane :=
  (HasEnded, leave_fair s true (leave_to s (AtEnded e) l)).

Definition stop (l : lane) (used : Z) (o : outcome) : result stopped * lane :=
  match in_slice (ctl l), current (at_ l) with
  | true, Some (s, quantum) =>
      let l0 := on_fair (sh_charge used (now l + used)) l in
      let left := Z.max 0 (quantum - used) in
      (* A change of weight rounds what protects; no cycle is gained by it. *)
      let rest := match the_fair (ctl l0) with
                  | Some q => Z.min left (sh_bound q)
                  | None => left
                  end in
      let l1 := on_places (set_rest rest) (upd s (set_account (add_runtime used))
                  (on_time (charge used) (on_ctl (set_in_slice false) l0))) in
      let '(d, l2) :=
        match o with
        | OutOfCycles =>
            if 0 <? rest then keep s l1
            else requeue s false (upd s (set_account add_preemption) l1)
        | Yielded => requeue s true l1
        | Slept until =>
            if until <=? frame (ctl l1) then requeue s true l1 else fall_asleep s until l1
        | Blocks r => block s r l1
        | Finished => finish s Finish l1
        | Faulted => finish s Fault l1
        end in
      (Done d, l2)
  | _, _ => (Refused Protocol, l)
  end.

Definition wake (l : lane) (r : reference) (src : wake_source) : result unit * lane :=
  match resolve l r, state_at l (fst r) with
  | Some c, Some (Blocked reason) =>
      if ends src reason then
        let l1 := count_wake src (book OWake l) in
        let l2 := if mints src
                  then upd (fst r) (fun c => set_tokens (Z.min 255 (tokens c + 1)) c) l1
                  else l1 in
        (Done tt, join_tail (fst r) Woken_ l2)
      else (Refused (WrongSource reason src), l)
  | Some _, Some s => (Refused (NotWaiting s), l)
  | _, _ => (Refused Stale, l)
  end.

Definition is_in_slice (l : lane) (s : Z) : bool :=
  in_slice (ctl l) && memb s (current_slot (at_ l)).

Definition hold (l : lane) (r : reference) (reason : Z) : result unit * lane :=
  let s := fst r in
  match resolve l r, state_at l s with
  | Some c, Some st =>
      if has_ended st then (Refused (IsEnded st), l)
      else
        let l1 := upd s (set_holds (Z.lor (holds c) (2 ^ reason))) l in
        (Done tt,
         match st with
         | Ready => on_fair (sh_set_aside s) (mv s AtHeld (book_wait s l1))
         | Running =>
             if in_slice (ctl l) then l1 else on_fair (sh_set_aside s) (leave_to s AtHeld l1)
         | _ => l1
         end)
  | _, _ => (Refused Stale, l)
  end.

Definition release (l : lane) (r : reference) (reason : Z) : result unit * lane :=
  let s := fst r in
  match resolve l r, state_at l s with
  | Some c, Some st =>
      if Z.testbit (holds c) reason then
        let h := Z.land (holds c) (Z.lnot (2 ^ reason)) in
        let l1 := upd s (set_holds h) l in
        (Done tt,
         match st with
         | Held _ =>
             if h =? 0 then join_place s Moved (count_wake FromRelease (book OWake l1)) else l1
         | _ => l1
         end)
      else (Refused (NotHeld reason (holds c)), l)
  | _, _ => (Refused Stale, l)
  end.

(** The end of a coroutine outside a slice. *)
Definition end_it (s : Z) (l : lane) : lane :=
  match state_at l s with
  | Some Ready => leave_fair s true (mv s (AtEnded Cancel) (book_wait s l))
  | Some Running => leave_fair s true (leave_to s (AtEnded Cancel) l)
  | Some (Ended _) => l
  | Some _ => leave_fair s true (mv s (AtEnded Cancel) l)
  | None => l
  end.

Definition cancel (l : lane) (r : reference) : result unit * lane :=
  let s := fst r in
  match resolve l r, state_at l s with
  | Some c, Some st =>
      if has_ended st then (Refused (IsEnded st), l)
      else if is_in_slice l s then (Refused (InSlice r), l)
      else (Done tt, end_it s l)
  | _, _ => (Refused Stale, l)
  end.

(** The record is freed; a preference for it lapses. *)
Definition forget (s : Z) (l : lane) : lane :=
  let l1 := match preferred (ctl l) with
            | Some (r, _) => if fst r =? s then on_ctl (set_preferred None) l else l
            | None => l
            end in
  on_places (remove s) l1.

Definition reap (l : lane) (r : reference) : result ledger * lane :=
  match resolve l r, state_at l (fst r) with
  | Some c, Some st =>
      if has_ended st then (Done (account c), forget (fst r) l) else (Refused (NotEnded st), l)
  | _, _ => (Refused Stale, l)
  end.

(** Insertion sort by a key, smallest first, stable. *)
Fixpoint insert_by {A} (key : A -> Z) (x : A) (l : list A) : list A :=
  match l with
  | [] => [x]
  | y :: r => if key x <=? key y then x :: l else y :: insert_by key x r
  end.
Fixpoint sort_by {A} (key : A -> Z) (l : list A) : list A :=
  match l with [] => [] | x :: r => insert_by key x (sort_by key r) end.

(** The slots of a session in the order they came to the lane. *)
Definition session_slots (l : lane) (session : Z) : list Z :=
  map fst (sort_by (fun e => came (snd e))
             (filter (fun e => session_of (tag (snd e)) =? session) (records (at_ l)))).

Fixpoint end_all (slots : list Z) (l : lane) : list (Z * ledger) * lane :=
  match slots with
  | [] => ([], l)
  | s :: r =>
      let l1 := end_it s l in
      let shown := match record_of l1 s with Some c => [(tag c, account c)] | None => [] end in
      let '(more, l2) := end_all r (forget s l1) in
      (shown ++ more, l2)
  end.

Definition first_in_slice (l : lane) (slots : list Z) : option Z :=
  List.find (is_in_slice l) slots.

Definition end_session (l : lane) (session : Z) : result (list (Z * ledger)) * lane :=
  let slots := session_slots l session in
  match first_in_slice l slots with
  | Some s => (Refused (InSlice (reference_of l s)), l)
  | None => let '(ended, l1) := end_all slots l in (Done ended, l1)
  end.

Definition prefer (l : lane) (r : reference) : result unit * lane :=
  if negb (handoff (config l)) then (Refused HandoffOff, l)
  else
    match resolve l r, state_at l (fst r) with
    | Some _, Some Ready =>
        match preferred (ctl l) with
        | Some (taken, _) => (Refused (SlotTaken taken), l)
        | None =>
            let inherits := match current (at_ l) with Some _ => Pending | None => Own end in
            (Done tt, on_ctl (set_preferred (Some (r, inherits))) l)
        end
    | Some _, Some st => (Refused (NotReady st), l)
    | _, _ => (Refused Stale, l)
    end.

Definition set_priority (l : lane) (r : reference) (p : Z) : result unit * lane :=
  match resolve l r, state_at l (fst r) with
  | Some _, Some st =>
      if has_ended st then (Refused (IsEnded st), l)
      else (Done tt, upd (fst r) (set_priority_of p) l)
  | _, _ => (Refused Stale, l)
  end.

Definition set_share (l : lane) (r : reference) (weight class : Z) : result unit * lane :=
  match resolve l r, state_at l (fst r) with
  | Some c, Some st =>
      if has_ended st then (Refused (IsEnded st), l)
      else (Done tt, on_fair (sh_share (fst r) weight class)
              (upd (fst r) (set_carried (change_luggage weight class (carried c))) l))
  | _, _ => (Refused Stale, l)
  end.

(** Of a session, where sessions share the lane. *)
Definition set_session_share (l : lane) (session weight class : Z) : result unit * lane :=
  match the_fair (ctl l) with
  | Some q =>
      match sh_session_share session weight class q with
      | Some q1 => (Done tt, on_ctl (set_fair (Some q1)) l)
      | None => (Refused NoSession, l)
      end
  | None => (Refused NoSession, l)
  end.

(** Lag does not survive a change of policy. *)
Definition forget_lag (c : coroutine) : coroutine :=
  set_carried (fresh_luggage (g_weight (carried c)) (g_class (carried c))) c.

(** The shares of all that are on the lane. *)
Definition fair_of (base least : Z) (of_sessions : bool) (l : lane) : shares :=
  let living := filter (fun e => match state_at l (fst e) with
                                 | Some (Ended _) => false
                                 | _ => true
                                 end) (records (at_ l)) in
  let arrival_of s := match record_of l s with Some c => arrival c | None => 0 end in
  let adopted :=
    fold_left (fun f e => sh_adopt (fst e) (session_of (tag (snd e))) (carried (snd e)) neutral f)
      living (new_shares base least of_sessions) in
  fold_left (fun f s => sh_enter s New f) (sort_by arrival_of (ready (at_ l))) adopted.

(** Another policy: arrivals stay, the current coroutine goes back to its place. *)
Definition set_policy (l : lane) (p : policy) : result unit * lane :=
  if in_slice (ctl l) then (Refused Protocol, l)
  else
    let l1 := match current (at_ l) with Some (s, _) => back_to_queue s l | None => l end in
    let l2 := with_policy p (on_ctl (fun c => set_streak 0 (set_preferred None c)) l1) in
    let l3 := fold_left (fun l s => upd s forget_lag l) (keys (at_ l2)) l2 in
    (Done tt, on_ctl (set_fair match p with
                               | FairShare base least x => Some (fair_of base least x l3)
                               | _ => None
                               end) l3).

(** ** Frames and waves *)

Definition begin_wave (l : lane) (sp : span) : lane :=
  on_ctl (fun c => set_boundary true (set_span sp c)) l.

Definition align (l : lane) (t : Z) : lane := on_time (idle_until t) l.

Definition row_of (l : lane) : row :=
  let m := frame_mark (ctl l) in
  Row (frame (ctl l)) (charged (time l) - m_charged m) (overhead_total (time l) - m_overhead m)
    (idle (time l) - m_idle m) (m_overrun_in m) (Z.max 0 (now l - frame_end l)).

Definition end_frame (l : lane) : row * lane :=
  let l1 := on_time (idle_until (frame_end l)) l in (row_of l1, l1).

(** Sleepers that are due, by frame and then by arrival. *)
Definition due (l : lane) (f : Z) : list Z :=
  let entries := filter (fun e => snd e <=? f) (sleeping (at_ l)) in
  let arrival_of s := match record_of l s with Some c => arrival c | None => 0 end in
  map fst (sort_by snd (sort_by (fun e => arrival_of (fst e)) entries)).

Definition wake_sleeper (l : lane) (s : Z) : lane :=
  join_tail s Woken_ (count_wake FromTimer (book OTimer l)).

Definition begin_frame (l : lane) (f : Z) : Z * lane :=
  let start := f * frame_cycles (config l) in
  let l1 := on_time (idle_until start) l in
  let m := Mark (charged (time l1)) (overhead_total (time l1)) (idle (time l1)) (now l1 - start) in
  let l2 := on_ctl (fun c => set_boundary true (set_frame f m c)) l1 in
  let sleepers := due l2 f in
  (Z.of_nat (length sleepers), fold_left wake_sleeper sleepers l2).

Definition next_wake (l : lane) : option Z :=
  match sort_by snd (sleeping (at_ l)) with [] => None | (_, u) :: _ => Some u end.

(** ** Moving between lanes *)

(** A coroutine that has left one lane and is not yet on another. *)
Record traveller := Traveller { t_record : coroutine; t_place : place; t_waited : Z }.

Definition place_of (st : state) : place :=
  match st with
  | Ready | Running => AtReady
  | Sleeping u => AtSleeping u
  | Blocked r => AtBlocked r
  | Held _ => AtHeld
  | Ended e => AtEnded e
  end.

Definition depart (l : lane) (s : Z) : option traveller * lane :=
  if is_in_slice l s then (None, l)
  else
    let l0 := match state_at l s with Some Running => back_to_queue s l | _ => l end in
    let l1 := match state_at l0 s with Some (Ended _) => l0 | _ => leave_fair s false l0 end in
    match record_of l1 s, state_at l1 s with
    | Some c, Some st => (Some (Traveller c (place_of st) (now l1 - since c)), forget s l1)
    | _, _ => (None, l)
    end.

(** What a session takes along, before its coroutines depart; and where it arrives. *)
Definition depart_session (l : lane) (session : Z) : option luggage * lane :=
  match the_fair (ctl l) with
  | Some q => let '(g, q1) := sh_depart session q in (g, on_ctl (set_fair (Some q1)) l)
  | None => (None, l)
  end.

Definition receive_session (session : Z) (g : option luggage) (l : lane) : lane :=
  match g with Some g => on_fair (sh_receive session g) l | None => l end.

Definition receive (l : lane) (r : reference) (t : traveller) (stolen : bool)
    : result unit * lane :=
  if is_fresh l r then
    let l1 := book OMigrate l in
    let a := arrivals (ctl l1) in
    let old := t_record t in
    let g := match the_fair (ctl l1) with
             | Some _ => carried old
             | None => fresh_luggage (g_weight (carried old)) (g_class (carried old))
             end in
    let c := Coroutine (snd r) (tag old) (holds old) a (now l1 - t_waited t) (picks (ctl l1))
               (priority old) (tokens old) a g (add_migration stolen (account old)) in
    let l2 := on_places (insert (fst r) c (t_place t))
                (on_ctl (set_arrivals (a + 1)) (note_generation r l1)) in
    let adopted := sh_adopt (fst r) (session_of (tag old)) g neutral in
    (Done tt, match t_place t with
              | AtEnded _ => l2
              | AtReady => on_fair (fun q => sh_enter (fst r) Moved (adopted q)) l2
              | _ => on_fair adopted l2
              end)
  else (Refused NotFresh, l).

(** * What can be read *)

Definition has_work (l : lane) : bool :=
  match current (at_ l), ready (at_ l) with None, [] => false | _, _ => true end.

Definition count {A} (l : list A) : Z := Z.of_nat (length l).

Definition population (l : lane) : list Z :=
  let p := at_ l in
  [count (ready p); count (current_slot p); count (sleeping p); count (blocked p); count (held p);
   count (ended p)].

Definition golden : Z := 0x9E3779B97F4A7C15.
Definition multiplier : Z := 0xD6E8FEB86659FD93.

(** One coroutine's part of the ready-set digest. *)
Definition mix (t g : Z) : Z :=
  let x0 := (t + g * golden) mod two64 in
  let turn x := (Z.lxor x (Z.shiftr x 32) * multiplier) mod two64 in
  let x2 := turn (turn x0) in
  Z.lxor x2 (Z.shiftr x2 32).

Definition ready_digest (l : lane) : Z :=
  let add sum s :=
    match record_of l s with
    | Some c => (sum + mix (tag c) (generation c)) mod two64
    | None => sum
    end in
  fold_left add (ready (at_ l) ++ current_slot (at_ l)) 0.

(** The values that the kernel's documentation gives. *)
Example mix_1_0 : mix 1 0 = 0x4179B061E0C0E0D0. Proof. reflexivity. Qed.
Example mix_0_1 : mix 0 1 = 0x4E17CF67001B3979. Proof. reflexivity. Qed.
Example mix_7_5_3 : mix (7 * 2 ^ 32 + 5) 3 = 0x6A82815CB1A0870E. Proof. reflexivity. Qed.

(** * Invariants *)

(** ** Placement is kept by each primitive *)

Lemma memb_in : forall s l, memb s l = true <-> In s l.
Proof.
  intros s l; induction l as [|k r IH]; simpl; [split; [discriminate | tauto] |].
  destruct (Z.eqb_spec k s); rewrite ?IH; intuition congruence.
Qed.

Lemma memb_not_in : forall s l, memb s l = false -> ~ In s l.
Proof. intros s l H I; apply memb_in in I; congruence. Qed.

Lemma permutation_filter : forall (f : Z -> bool) l m,
  Permutation l m -> Permutation (filter f l) (filter f m).
Proof.
  intros f l m P; induction P; simpl; auto.
  - destruct (f x); auto.
  - destruct (f x), (f y); auto using perm_swap.
  - eauto using perm_trans.
Qed.

Lemma drop_key_keys : forall {A} s (l : list (Z * A)), map fst (drop_key s l) = drop s (map fst l).
Proof.
  intros A s l; unfold drop, drop_key; induction l as [|[k a] r IH]; simpl; auto.
  destruct (k =? s); simpl; rewrite IH; reflexivity.
Qed.

Lemma drop_app : forall s l m, drop s (l ++ m) = drop s l ++ drop s m.
Proof. intros; apply filter_app. Qed.

Lemma drop_not_in : forall s l, ~ In s (drop s l).
Proof.
  intros s l H; unfold drop in H; apply filter_In in H as [_ H].
  rewrite Z.eqb_refl in H; discriminate.
Qed.

Lemma drop_absent : forall s l, ~ In s l -> drop s l = l.
Proof.
  intros s l; unfold drop; induction l as [|k r IH]; simpl; auto; intros H.
  destruct (Z.eqb_spec k s); simpl; [intuition congruence | rewrite IH; intuition].
Qed.

Lemma drop_split : forall s l, NoDup l -> In s l -> Permutation l (s :: drop s l).
Proof.
  intros s l N; induction N as [|k r H N IH]; simpl; [tauto |].
  intros [E | I].
  - subst; rewrite Z.eqb_refl; simpl; fold (drop s r); rewrite drop_absent; auto.
  - destruct (Z.eqb_spec k s); [subst; tauto |]; simpl; fold (drop s r).
    rewrite perm_swap; constructor; auto.
Qed.

Lemma take_out_keys : forall s p, keys (take_out s p) = keys p.
Proof. reflexivity. Qed.

Lemma take_out_members : forall s p, members (take_out s p) = drop s (members p).
Proof.
  intros s p; unfold members, take_out, current_slot; simpl.
  rewrite !drop_app, !drop_key_keys.
  destruct (current p) as [[c rest] |]; simpl; auto.
  destruct (Z.eqb_spec c s); simpl; reflexivity.
Qed.

Lemma put_in_keys : forall s to p, keys (put_in s to p) = keys p.
Proof. intros s to []; destruct to; reflexivity. Qed.

Lemma to_front : forall s (l m n : list Z),
  Permutation m (s :: n) -> Permutation (l ++ m) (s :: l ++ n).
Proof.
  intros s l m n P; rewrite P; symmetry; apply Permutation_middle.
Qed.

Lemma put_in_members : forall s to p,
  is_free to p = true -> Permutation (members (put_in s to p)) (s :: members p).
Proof.
  intros s to [rs rd sl bl he en cu] F; unfold members, current_slot; destruct to; simpl in *;
    try (destruct cu; [discriminate |]);
    repeat (try reflexivity; apply to_front).
Qed.

Lemma placed_move : forall s to p, Placed p -> Placed (move s to p).
Proof.
  intros s to p [N P]; unfold move.
  destruct (memb s (keys p)) eqn:M; [| split; auto].
  destruct (is_free to (take_out s p)) eqn:F; [| split; auto].
  unfold Placed; rewrite put_in_keys, take_out_keys; split; auto.
  rewrite put_in_members by auto; rewrite take_out_members.
  apply memb_in in M; rewrite (drop_split s (keys p)) by auto.
  constructor; apply permutation_filter; auto.
Qed.

Lemma update_keys : forall s f p, keys (update s f p) = keys p.
Proof.
  intros s f p; unfold keys, update; simpl; rewrite map_map; apply map_ext.
  intros [k c]; simpl; destruct (k =? s); reflexivity.
Qed.

Lemma placed_update : forall s f p, Placed p -> Placed (update s f p).
Proof. intros s f p [N P]; unfold Placed; rewrite update_keys; split; auto. Qed.

Lemma placed_insert : forall s c to p, Placed p -> Placed (insert s c to p).
Proof.
  intros s c to p [N P]; unfold insert.
  destruct (memb s (keys p)) eqn:M; [split; auto |].
  destruct (is_free to p) eqn:F; [| split; auto].
  unfold Placed; rewrite put_in_keys; split.
  - unfold keys; simpl; constructor; auto using memb_not_in.
  - rewrite put_in_members by exact F; unfold keys at 1; simpl; constructor; exact P.
Qed.

Lemma placed_remove : forall s p, Placed p -> Placed (remove s p).
Proof.
  intros s p [N P]; split; unfold remove.
  - unfold keys; simpl; rewrite drop_key_keys; apply NoDup_filter, N.
  - change (members _) with (members (take_out s p)).
    unfold keys; simpl; rewrite drop_key_keys, take_out_members.
    apply permutation_filter, P.
Qed.

Lemma placed_set_rest : forall rest p, Placed p -> Placed (set_rest rest p).
Proof.
  intros rest p [N P]; split; auto.
  unfold members, current_slot, set_rest in *; simpl; destruct (current p) as [[c r] |]; auto.
Qed.

(** Every live coroutine is in exactly one place, once; what is not live is in none. *)
Theorem one_place : forall p s, Placed p ->
  (In s (keys p) ->
   count_occ Z.eq_dec (ready p) s + count_occ Z.eq_dec (map fst (sleeping p)) s
   + count_occ Z.eq_dec (map fst (blocked p)) s + count_occ Z.eq_dec (held p) s
   + count_occ Z.eq_dec (map fst (ended p)) s + count_occ Z.eq_dec (current_slot p) s = 1)%nat
  /\ (~ In s (keys p) -> ~ In s (members p)).
Proof.
  intros p s [N P]; split; intros I.
  - rewrite (NoDup_count_occ' Z.eq_dec) in N; specialize (N s I).
    pose proof (proj1 (Permutation_count_occ Z.eq_dec _ _) P s) as E; unfold members in E.
    rewrite !count_occ_app in E; lia.
  - intros M; apply I; eapply Permutation_in; eauto.
Qed.

(** ** Time is conserved by each primitive *)

Lemma conserved_book : forall o c b, Conserved b -> Conserved (book_cost o c b).
Proof.
  intros o c [cl ch id [p s w t i r m st]] H; unfold Conserved, overhead_total, sum_operations in *.
  destruct o; simpl in *; lia.
Qed.

Lemma conserved_charge : forall u b, Conserved b -> Conserved (charge u b).
Proof. intros u b H; unfold Conserved, charge, overhead_total in *; simpl; lia. Qed.

Lemma conserved_idle : forall t b, Conserved b -> Conserved (idle_until t b).
Proof. intros t b H; unfold Conserved, idle_until, overhead_total in *; simpl; lia. Qed.

(** ** The invariant of a lane *)

(** The totals at the beginning of the frame add up to the grid and what ran over it. *)
Definition MarkKept (l : lane) : Prop :=
  let m := frame_mark (ctl l) in
  m_charged m + m_overhead m + m_idle m = frame (ctl l) * frame_cycles (config l) + m_overrun_in m
  /\ 0 <= m_overrun_in m.

Record Good (l : lane) : Prop := {
  good_placed : Placed (at_ l);
  good_conserved : Conserved (time l);
  good_mark : MarkKept l }.

Lemma good_new : forall s, Good (new_lane s).
Proof.
  intros s; split; simpl.
  - split; constructor.
  - reflexivity.
  - unfold MarkKept; simpl; lia.
Qed.

Definition keeps_mark (f : control -> control) : Prop :=
  forall c, frame (f c) = frame c /\ frame_mark (f c) = frame_mark c.

Lemma good_ctl : forall f l, keeps_mark f -> Good l -> Good (on_ctl f l).
Proof.
  intros f l K [P C M]; split; auto.
  unfold MarkKept in *; simpl; destruct (K (ctl l)) as [-> ->]; exact M.
Qed.

Lemma good_book : forall o l, Good l -> Good (book o l).
Proof. intros o l [P C M]; split; auto; apply conserved_book, C. Qed.

Lemma good_charge : forall u l, Good l -> Good (on_time (charge u) l).
Proof. intros u l [P C M]; split; auto; apply conserved_charge, C. Qed.

Lemma good_idle : forall t l, Good l -> Good (on_time (idle_until t) l).
Proof. intros t l [P C M]; split; auto; apply conserved_idle, C. Qed.

Lemma good_upd : forall s f l, Good l -> Good (upd s f l).
Proof. intros s f l [P C M]; split; auto; apply placed_update, P. Qed.

Lemma good_mv : forall s to l, Good l -> Good (mv s to l).
Proof. intros s to l [P C M]; split; auto; apply placed_move, P. Qed.

Lemma good_insert : forall s c to l, Good l -> Good (on_places (insert s c to) l).
Proof. intros s c to l [P C M]; split; auto; apply placed_insert, P. Qed.

Lemma good_remove : forall s l, Good l -> Good (on_places (remove s) l).
Proof. intros s l [P C M]; split; auto; apply placed_remove, P. Qed.

Lemma good_rest : forall r l, Good l -> Good (on_places (set_rest r) l).
Proof. intros r l [P C M]; split; auto; apply placed_set_rest, P. Qed.

Lemma good_policy : forall p l, Good l -> Good (with_policy p l).
Proof. intros p l [P C M]; split; auto. Qed.

#[local] Hint Extern 2 (keeps_mark _) => (intros ?; split; reflexivity) : lane.
#[local] Hint Resolve good_ctl good_book good_charge good_idle good_upd good_mv good_insert
  good_remove good_rest good_policy : lane.
#[local] Hint Extern 4 (Good match ?x with _ => _ end) => destruct x : lane.

(** Compositions of primitives, in the order of their definitions. *)

Ltac good := intros; cbv zeta; auto 20 with lane.

Lemma good_count_wake : forall s l, Good l -> Good (count_wake s l).
Proof. unfold count_wake; good. Qed.
#[local] Hint Resolve good_count_wake : lane.

Lemma good_on_fair : forall f l, Good l -> Good (on_fair f l).
Proof. unfold on_fair; good. Qed.

Lemma good_leave_fair : forall s e l, Good l -> Good (leave_fair s e l).
Proof.
  unfold leave_fair; intros s e l G; destruct (the_fair (ctl l)) as [q |]; auto.
  destruct (sh_leave s e q); good.
Qed.
#[local] Hint Resolve good_on_fair good_leave_fair : lane.

Lemma good_join_place : forall s e l, Good l -> Good (join_place s e l).
Proof. unfold join_place; good. Qed.

Lemma good_new_arrival : forall s l, Good l -> Good (new_arrival s l).
Proof. unfold new_arrival; good. Qed.
#[local] Hint Resolve good_join_place good_new_arrival : lane.

Lemma good_join_tail : forall s e l, Good l -> Good (join_tail s e l).
Proof. unfold join_tail; good. Qed.

Lemma good_book_wait : forall s l, Good l -> Good (book_wait s l).
Proof. unfold book_wait; good. Qed.

Lemma good_note : forall r l, Good l -> Good (note_generation r l).
Proof. unfold note_generation; good. Qed.

Lemma good_settle : forall l, Good l -> Good (settle_inheritance l).
Proof.
  unfold settle_inheritance; intros l G.
  destruct (current (at_ l)) as [[? ?] |]; auto.
  destruct (preferred (ctl l)) as [[? []] |]; good.
Qed.
#[local] Hint Resolve good_join_tail good_book_wait good_note good_settle : lane.

Lemma good_leave_to : forall s to l, Good l -> Good (leave_to s to l).
Proof. unfold leave_to; good. Qed.
#[local] Hint Resolve good_leave_to : lane.

Lemma good_back : forall s l, Good l -> Good (back_to_queue s l).
Proof. unfold back_to_queue; good. Qed.
#[local] Hint Resolve good_back : lane.

Lemma good_displace : forall l, Good l -> Good (displace l).
Proof. unfold displace; good. Qed.

Lemma good_make_current : forall s q l, Good l -> Good (make_current s q l).
Proof. unfold make_current; good. Qed.

Lemma good_start : forall p w l, Good l -> Good (snd (start_slice p w l)).
Proof.
  unfold start_slice; intros p w l G; destruct (current (at_ l)) as [[s q] |]; auto.
  cbv zeta; destruct (limits l q); simpl; good.
Qed.
#[local] Hint Resolve good_displace good_make_current : lane.

Lemma good_end_it : forall s l, Good l -> Good (end_it s l).
Proof. unfold end_it; good. Qed.

Lemma good_forget : forall s l, Good l -> Good (forget s l).
Proof.
  unfold forget; intros s l G; cbv zeta; apply good_remove.
  destruct (preferred (ctl l)) as [[? ?] |]; good.
Qed.
#[local] Hint Resolve good_end_it good_forget : lane.

Lemma good_end_all : forall slots l, Good l -> Good (snd (end_all slots l)).
Proof.
  intros slots; induction slots as [|s r IH]; simpl; intros l G; auto.
  destruct (end_all r (forget s (end_it s l))) as [more l2] eqn:E; simpl.
  change l2 with (snd (more, l2)); rewrite <- E; good.
Qed.

(** ** Every operation *)

Lemma good_spawn : forall l r t p w c g, Good l -> Good (snd (spawn l r t p w c g)).
Proof. unfold spawn; intros; destruct (is_fresh l r); simpl; good. Qed.

Lemma good_dispatch : forall l, Good l -> Good (snd (dispatch l)).
Proof.
  intros l G; unfold dispatch.
  destruct (in_slice (ctl l)); auto.
  destruct (is_over l); auto.
  set (l1 := if boundary (ctl l) && prefers_another l then displace l else l).
  assert (G1 : Good l1) by (unfold l1; good).
  clearbody l1; cbv zeta.
  set (l2 := on_ctl (set_boundary false) l1).
  assert (G2 : Good l2) by (unfold l2; good).
  clearbody l2.
  destruct (current (at_ l2)) as [? |].
  - set (l3 := on_fair (sh_mark (now l2)) l2).
    assert (G3 : Good l3) by (unfold l3; good).
    pose proof (good_start false false l3 G3) as H.
    destruct (start_slice false false l3); exact H.
  - assert (G3 : Good (snd (pick l2))).
    { unfold pick; destruct (the_fair (ctl l2)) as [q |];
        [destruct (pick_fair l2 (sh_mark (now l2) q)) |]; simpl; good. }
    destruct (pick l2) as [[[s q] |] l3]; simpl in G3; [| simpl; good].
    destruct (is_over (make_current s q l3)); [simpl; good |].
    pose proof (good_start true (is_switch l3 (reference_of l3 s)) (make_current s q l3)
                  (good_make_current s q l3 G3)) as H.
    destruct (start_slice true _ _); exact H.
Qed.

Lemma good_keep : forall s l, Good l -> Good (snd (keep s l)).
Proof. unfold keep; intros s l G; destruct (is_held l s); simpl; good. Qed.

Lemma good_requeue : forall s y l, Good l -> Good (snd (requeue s y l)).
Proof. unfold requeue; intros s y l G; cbv zeta; destruct (is_held _ s); simpl; good. Qed.

Lemma good_fall_asleep : forall s u l, Good l -> Good (snd (fall_asleep s u l)).
Proof. unfold fall_asleep; intros; simpl; good. Qed.

Lemma good_block : forall s r l, Good l -> Good (snd (block s r l)).
Proof. unfold block; intros; simpl; good. Qed.

Lemma good_finish : forall s e l, Good l -> Good (snd (finish s e l)).
Proof. unfold finish; intros; simpl; good. Qed.

Lemma good_stop : forall l u o, Good l -> Good (snd (stop l u o)).
Proof.
  intros l u o G; unfold stop.
  destruct (in_slice (ctl l)); auto.
  destruct (current (at_ l)) as [[s q] |]; auto; cbv zeta.
  match goal with
  | |- context [on_places (set_rest ?r) ?x] => set (l1 := on_places (set_rest r) x)
  end.
  assert (G1 : Good l1) by (unfold l1; good).
  clearbody l1.
  match goal with |- Good (snd (let '(d, l2) := ?m in _)) => assert (H : Good (snd m)) end.
  { destruct o; auto using good_requeue, good_block, good_finish.
    - destruct (until <=? _); auto using good_requeue, good_fall_asleep.
    - destruct (0 <? _); auto using good_keep; apply good_requeue; good. }
  match goal with |- Good (snd (let '(d, l2) := ?m in _)) => destruct m end; exact H.
Qed.

Ltac refused_or_good :=
  repeat match goal with
  | |- Good (snd (match ?x with _ => _ end)) => destruct x
  end; simpl; try assumption; cbv zeta; auto 20 with lane.

Lemma good_wake : forall l r s, Good l -> Good (snd (wake l r s)).
Proof. intros l r s G; unfold wake; cbv zeta; refused_or_good. Qed.

Lemma good_hold : forall l r x, Good l -> Good (snd (hold l r x)).
Proof. intros l r x G; unfold hold; cbv zeta; refused_or_good. Qed.

Lemma good_release : forall l r x, Good l -> Good (snd (release l r x)).
Proof. intros l r x G; unfold release; cbv zeta; refused_or_good. Qed.

Lemma good_cancel : forall l r, Good l -> Good (snd (cancel l r)).
Proof. intros l r G; unfold cancel; cbv zeta; refused_or_good. Qed.

Lemma good_reap : forall l r, Good l -> Good (snd (reap l r)).
Proof. intros l r G; unfold reap; refused_or_good. Qed.

Lemma good_end_session : forall l s, Good l -> Good (snd (end_session l s)).
Proof.
  intros l s G; unfold end_session; cbv zeta.
  destruct (first_in_slice l (session_slots l s)); auto.
  pose proof (good_end_all (session_slots l s) l G) as H.
  destruct (end_all (session_slots l s) l); exact H.
Qed.

Lemma good_prefer : forall l r, Good l -> Good (snd (prefer l r)).
Proof. intros l r G; unfold prefer; cbv zeta; refused_or_good. Qed.

Lemma good_set_priority : forall l r p, Good l -> Good (snd (set_priority l r p)).
Proof. intros l r p G; unfold set_priority; refused_or_good. Qed.

Lemma good_set_share : forall l r w c, Good l -> Good (snd (set_share l r w c)).
Proof. intros l r w c G; unfold set_share; refused_or_good. Qed.

Lemma good_set_session_share : forall l k w c, Good l -> Good (snd (set_session_share l k w c)).
Proof. intros l k w c G; unfold set_session_share; refused_or_good. Qed.

Lemma good_depart_session : forall l k, Good l -> Good (snd (depart_session l k)).
Proof.
  intros l k G; unfold depart_session; destruct (the_fair (ctl l)) as [q |]; auto.
  destruct (sh_depart k q); simpl; good.
Qed.

Lemma good_receive_session : forall k g l, Good l -> Good (receive_session k g l).
Proof. intros k g l G; unfold receive_session; destruct g; good. Qed.

Lemma good_set_policy : forall l p, Good l -> Good (snd (set_policy l p)).
Proof.
  intros l p G; unfold set_policy; destruct (in_slice (ctl l)); auto; cbv zeta; simpl.
  match goal with
  | |- Good (on_ctl _ (fold_left _ ?ks ?m)) =>
      assert (G2 : Good m) by (destruct (current (at_ l)) as [[? ?] |]; good);
      revert G2; generalize ks as slots, m as l2
  end.
  intros slots l2 G2; apply good_ctl; [intros ?; split; reflexivity |].
  revert l2 G2; induction slots; simpl; auto; intros; apply IHslots; good.
Qed.

Lemma good_begin_wave : forall l s, Good l -> Good (begin_wave l s).
Proof. unfold begin_wave; good. Qed.

Lemma good_align : forall l t, Good l -> Good (align l t).
Proof. unfold align; good. Qed.

Lemma good_end_frame : forall l, Good l -> Good (snd (end_frame l)).
Proof. unfold end_frame; intros; simpl; good. Qed.

Lemma good_wake_sleepers : forall slots l, Good l -> Good (fold_left wake_sleeper slots l).
Proof.
  intros slots; induction slots; simpl; auto; intros l G.
  apply IHslots; unfold wake_sleeper; good.
Qed.

Lemma good_begin_frame : forall l f, Good l -> Good (snd (begin_frame l f)).
Proof.
  intros l f G; unfold begin_frame; cbv zeta; simpl; apply good_wake_sleepers.
  destruct (good_idle (f * frame_cycles (config l)) l G) as [P C M]; split; auto.
  unfold MarkKept; simpl; unfold Conserved in C; simpl in C; unfold now; simpl in *; lia.
Qed.

Lemma good_depart : forall l s, Good l -> Good (snd (depart l s)).
Proof.
  intros l s G; unfold depart; destruct (is_in_slice l s); auto; cbv zeta.
  set (l0 := match state_at l s with Some Running => back_to_queue s l | _ => l end).
  assert (G0 : Good l0) by (unfold l0; destruct (state_at l s) as [[] |]; good).
  clearbody l0.
  set (l1 := match state_at l0 s with Some (Ended _) => l0 | _ => leave_fair s false l0 end).
  assert (G1 : Good l1) by (unfold l1; destruct (state_at l0 s) as [[] |]; good).
  clearbody l1; destruct (record_of l1 s), (state_at l1 s); simpl; good.
Qed.

Lemma good_receive : forall l r t b, Good l -> Good (snd (receive l r t b)).
Proof.
  intros l r t b G; unfold receive; destruct (is_fresh l r); auto; cbv zeta; simpl.
  destruct (t_place t); good.
Qed.

(** ** One theorem for all operations *)

Inductive request :=
| RSpawn (r : reference) (t p weight class : Z) (share : luggage)
| RDispatch
| RStop (used : Z) (o : outcome)
| RWake (r : reference) (s : wake_source)
| RHold (r : reference) (reason : Z)
| RRelease (r : reference) (reason : Z)
| RCancel (r : reference)
| RReap (r : reference)
| REndSession (session : Z)
| RPrefer (r : reference)
| RSetPriority (r : reference) (p : Z)
| RSetShare (r : reference) (weight class : Z)
| RSetSessionShare (session weight class : Z)
| RSetPolicy (p : policy)
| RBeginWave (s : span)
| RAlign (t : Z)
| REndFrame
| RBeginFrame (f : Z)
| RInbox
| RDepartSession (session : Z)
| RReceiveSession (session : Z) (g : option luggage)
| RDepart (s : Z)
| RReceive (r : reference) (t : traveller) (stolen : bool).

Definition step (l : lane) (q : request) : lane :=
  match q with
  | RSpawn r t p w c g => snd (spawn l r t p w c g)
  | RDispatch => snd (dispatch l)
  | RStop u o => snd (stop l u o)
  | RWake r s => snd (wake l r s)
  | RHold r x => snd (hold l r x)
  | RRelease r x => snd (release l r x)
  | RCancel r => snd (cancel l r)
  | RReap r => snd (reap l r)
  | REndSession s => snd (end_session l s)
  | RPrefer r => snd (prefer l r)
  | RSetPriority r p => snd (set_priority l r p)
  | RSetShare r w c => snd (set_share l r w c)
  | RSetSessionShare k w c => snd (set_session_share l k w c)
  | RSetPolicy p => snd (set_policy l p)
  | RBeginWave s => begin_wave l s
  | RAlign t => align l t
  | REndFrame => snd (end_frame l)
  | RBeginFrame f => snd (begin_frame l f)
  | RInbox => book OInbox l
  | RDepartSession k => snd (depart_session l k)
  | RReceiveSession k g => receive_session k g l
  | RDepart s => snd (depart l s)
  | RReceive r t b => snd (receive l r t b)
  end.

Theorem step_good : forall q l, Good l -> Good (step l q).
Proof.
  intros q l G; destruct q; unfold step;
    auto using good_spawn, good_dispatch, good_stop, good_wake, good_hold, good_release,
      good_cancel, good_reap, good_end_session, good_prefer, good_set_priority, good_set_share,
      good_set_session_share, good_depart_session, good_receive_session,
      good_set_policy, good_begin_wave, good_align, good_end_frame, good_begin_frame, good_book,
      good_depart, good_receive.
Qed.

(** Every state that any sequence of operations reaches satisfies both invariants. *)
Theorem run_good : forall s requests, Good (fold_left step requests (new_lane s)).
Proof.
  intros s requests; generalize (good_new s); generalize (new_lane s).
  induction requests; simpl; auto using step_good.
Qed.

(** The placement invariant, stated alone. *)
Theorem run_placed : forall s requests, Placed (at_ (fold_left step requests (new_lane s))).
Proof. intros; apply good_placed, run_good. Qed.

(** Conservation, stated alone: charged + overhead + idle = clock. *)
Theorem run_conserved : forall s requests,
  let b := time (fold_left step requests (new_lane s)) in
  charged b + overhead_total b + idle b = clock b.
Proof. intros; apply (good_conserved _ (run_good s requests)). Qed.

(** The row of a frame adds up (semantics 20). *)
Theorem row_conserved : forall l, Good l ->
  let r := fst (end_frame l) in
  r_charged r + r_overhead r + r_idle r + r_overrun_in r
    = frame_cycles (config l) + r_overrun_out r.
Proof.
  intros l [P C [M _]]; unfold end_frame, row_of, frame_end, now; simpl.
  unfold Conserved, overhead_total in *; simpl in *; unfold idle_until, frame_end, now in *.
  simpl in *; lia.
Qed.

