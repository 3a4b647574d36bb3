(** A machine of sessions, coroutines and channels over the lanes of [Lane], as an executable model
    of crates/system: what it logs is compared with the shipped code event by event.

    The rules are those of docs/spec/semantics.md (the numbers in brackets). A lane is the proved
    model of [Lane]; this file adds what the system keeps beside it. [tick] is one transition. In a
    wave the lanes run in order; a step of a lane has the lane, the sessions of its group and what
    is constant in a wave ([act_on]). Effects cross lanes in the one order of [15]; the ways in
        which
    the code does the same faster (batches, parcels) have no counterpart here. The theorems are in
    Changes.v and Systems.v, waves of groups on any number of workers among them.

    A guest is a list of instructions over a few memory cells and one sum, with the cycles of each
    block given; the harness compiles the same list to WebAssembly. A coroutine stops only at
    safepoints: before a block after a host operation, before a host operation, and at each
    iteration of a loop [4].

    Modelled: spawn, join, cancel, detach, exit, faults, yield, sleep, numbers over channels of any
    lane with credits, select, close, channels made by guests, input, output, split sessions,
    limits of coroutines and channels, handoff, steal, balance, frames, jumps and deadlock.
    Not modelled: byte messages, calls, contexts, caps, parks and waits for sessions, WASI, limits
    of bytes, digests.

    Elsewhere: guests and their text (checks/oracle), extraction (oracle/ExtractSystem.v). *)

From Coq Require Import ZArith List Bool.
From Wavelock Require Import Groups Lane.
From Wavelock Require Lanes.
Import ListNotations.
Open Scope Z_scope.

(** * Guests *)

(** What happens inside a block, in order. *)
Inductive action :=
| Fold                      (** the last result into the sum *)
| FoldCell (cell : Z)
| KeepResult (cell : Z)     (** the last result into a cell *)
| KeepSum (cell : Z).

Inductive op :=
| OYield
| OSleep (frames : Z)
| OSpawn (entry : Z)
| OSpawnOn (entry lane : Z)
| OJoin (cell to : Z)
| OCancel (cell : Z)
| ODetach (cell : Z)
| OExit
| OSend (handle : Z)        (** of the sum *)
| OTrySend (handle : Z)
| ORecv (handle to : Z)
| OTryRecv (handle to : Z)
| OClose (handle : Z)
| OMake (capacity : Z)
| OSelect (handles : list Z)
| OOutput (cell : Z)        (** eight bytes *)
| OInput (room : Z)
| ORemaining
| OWork (times each : Z)    (** a loop *)
| OFault
| OReturn.

Record instruction := Instruction {
  i_stops : bool;           (** a safepoint is before the block *)
  i_cost : Z;               (** of the block *)
  i_actions : list action;
  i_op : op;
  i_op_cost : Z }.

Definition program := list instruction.

Inductive stage := BeforeBlock | BeforeOp | InOp | InLoop (left_ : Z).

Record guest := Guest {
  g_code : program;         (** what is left, the current instruction first *)
  g_stage : stage;
  g_sum : Z;
  g_result : Z;
  g_values : list Z;        (** what the block computed for the operation *)
  g_used : Z;
  g_paid : Z }.

Definition set_stage st g :=
  Guest (g_code g) st (g_sum g) (g_result g) (g_values g) (g_used g) (g_paid g).
Definition use n g :=
  Guest (g_code g) (g_stage g) (g_sum g) (g_result g) (g_values g) (g_used g + n) (g_paid g).
Definition next_instruction r g :=
  Guest (tl (g_code g)) BeforeBlock (g_sum g) r [] (g_used g) 0.

(** Numbers of the guest have 64 bits; what is signed is read as signed. *)
Definition two32 : Z := Eval compute in 2 ^ 32.
Definition two63 : Z := Eval compute in 2 ^ 63.
Definition wrap (n : Z) : Z := n mod two64.
Definition signed (n : Z) : Z := if n <? two63 then n else n - two64.
Definition fold_in (sum n : Z) : Z := wrap (sum * 31 + n).

Definition cell_at (m : list Z) (c : Z) : Z := nth (Z.to_nat c) m 0.
Definition set_cell (m : list Z) (c v : Z) : list Z := Lanes.set_nth (Z.to_nat c) v m.

Fixpoint act (l : list action) (g : guest) (m : list Z) : guest * list Z :=
  match l with
  | [] => (g, m)
  | a :: r =>
      let with_sum s := Guest (g_code g) (g_stage g) s (g_result g) (g_values g) (g_used g)
                          (g_paid g) in
      match a with
      | Fold => act r (with_sum (fold_in (g_sum g) (g_result g))) m
      | FoldCell c => act r (with_sum (fold_in (g_sum g) (cell_at m c))) m
      | KeepResult c => act r g (set_cell m c (wrap (g_result g)))
      | KeepSum c => act r g (set_cell m c (g_sum g))
      end
  end.

(** The arguments that the block computes from memory and sum. *)
Definition values_of (o : op) (g : guest) (m : list Z) : list Z :=
  match o with
  | OJoin c _ | OCancel c | ODetach c => [cell_at m c]
  | OExit | OSend _ | OTrySend _ | OReturn => [g_sum g]
  | _ => []
  end.

Inductive guest_stop := OutOfCycles_ | InHost (o : op) | Returned (v : Z) | Faulted_.

(** Runs until a stop; [left_] are the cycles it may use. *)
Fixpoint run_guest (fuel : nat) (g : guest) (m : list Z) (left_ : Z)
    : guest_stop * guest * list Z :=
  match fuel, g_code g with
  | O, _ | _, [] => (Faulted_, g, m)
  | S k, i :: _ =>
      match g_stage g with
      | InOp => (InHost (i_op i), g, m)
      | BeforeBlock =>
          if i_stops i && (left_ <=? 0) then (OutOfCycles_, g, m)
          else
            let '(g1, m1) := act (i_actions i) (use (i_cost i) g) m in
            let g2 := Guest (g_code g1) BeforeOp (g_sum g1) (g_result g1)
                        (values_of (i_op i) g1 m1) (g_used g1) 0 in
            match i_op i with
            | OReturn => (Returned (nth 0 (g_values g2) 0), g2, m1)
            | OFault => (Faulted_, g2, m1)
            | OWork n _ => run_guest k (set_stage (InLoop n) g2) m1 (left_ - i_cost i)
            | _ => run_guest k g2 m1 (left_ - i_cost i)
            end
      | BeforeOp =>
          if left_ <=? 0 then (OutOfCycles_, g, m)
          else run_guest k (set_stage InOp (use (i_op_cost i) g)) m (left_ - i_op_cost i)
      | InLoop n =>
          match i_op i with
          | OWork _ each =>
              let may := Z.max 0 ((left_ + each - 1) / each) in
              if n <=? may
              then run_guest k (next_instruction 0 (use (n * each) g)) m (left_ - n * each)
              else (OutOfCycles_, set_stage (InLoop (n - may)) (use (may * each) g), m)
          | _ => (Faulted_, g, m)
          end
      end
  end.

Definition steps_of (g : guest) : nat := 4 * length (g_code g) + 4.

Definition start_guest (p : program) (argument : Z) : guest :=
  Guest p BeforeBlock argument 0 [] 0 0.

(** * The machine *)

Definition name := (Z * Z * Z)%type.      (** session, slot, generation *)
Definition place_of_channel := (Z * Z)%type.   (** owner, index *)
Definition same_channel (a b : place_of_channel) : bool :=
  (fst a =? fst b) && (snd a =? snd b).

Definition e_invalid := -1. Definition e_stale := -2. Definition e_closed := -3.
Definition e_again := -4. Definition e_size := -5. Definition e_limit := -6.
Definition e_denied := -7. Definition e_faulted := -8. Definition e_canceled := -9.

Inductive wait_state :=
| WNone
| WQueued (ticket : Z)
| WTaking (ticket : Z)
| WSelecting (on : list (Z * Z))          (** channel, ticket *)
| WJoining (target : Z)
| WLane
| WCode (code : Z)
| WNumber (n : Z).

Record live := Live {
  kernel : option reference;
  waits : wait_state;
  joiners : list Z;                        (** slots, first come first *)
  body : guest }.

Inductive task_state := Free | Alive (x : live) | Over (status value : Z).

Record task := Task { k_generation : Z; k_detached : bool; k_lane : Z; k_state : task_state }.

Record waiting_sender := WaitingSender { q_name : name; q_local : bool; q_message : Z }.

(** [x_touched]: its space is divided anew at the wave's end. *)
Record wiring := Wiring {
  x_lanes : list Z; x_home : Z; x_free : Z; x_open : Z; x_touched : bool }.

Record channel := Channel {
  c_capacity : Z; c_queue : list Z;
  c_receivers : list (Z * Z);              (** ticket, slot *)
  c_senders : list (Z * waiting_sender);
  c_selectors : list (Z * Z);
  c_ticket : Z; c_closed : bool; c_wiring : option wiring }.

Inductive handle := Own_ (index : Z) | Port_ (index : Z).
Record port := Port { p_channel : place_of_channel; p_home : Z; p_closed : bool }.

Record session := Session {
  s_priority : Z; s_weight : Z; s_class : Z; s_pinned : bool;
  s_programs : list program;               (** by entry of the table *)
  s_tasks : list task; s_free : list Z; s_occupied : Z; s_live : Z;
  s_channels : list channel; s_ports : list port; s_handles : list handle;
  s_memory : list Z; s_input : list Z; s_output : Z;
  s_exit : Z; s_ended : option Z; s_first_faulted : bool; s_unjoined : Z }.

Inductive effect :=
| Message (c : place_of_channel) (m : Z)
| WaitToSend (c : place_of_channel) (who : name) (m : Z)
| Withdraw (c : place_of_channel) (ticket : Z)
| ClosePort (c : place_of_channel)
| Publish (who : name)
| WakeUp (who : name) (src : wake_source)
| CancelIt (target by_ : name).

Record credit := Credit {
  d_channel : place_of_channel; d_lanes : list Z; d_free : Z; d_used : Z; d_wave : Z;
  d_closed : bool }.

Definition event := list Z.

Record lane_state := LaneState {
  l_kernel : lane;
  l_log : list event;                      (** last first *)
  l_outbox : list (Z * effect);            (** last first *)
  l_credits : list credit;
  l_mark : Z;
  l_fresh : Z;
  l_open : bool }.                         (** it has something left to run in this wave *)

Record config := Config {
  f_lanes : Z; f_frame_cycles : Z; f_span_picks : bool; f_span : Z; f_last : Z; f_handoff : bool;
  f_steal : bool; f_balance : bool; f_policy : policy }.

(** In a wave the lanes run in order; [turn] is the one that runs. *)
Inductive phase := AtBoundary | InFrame | InWave (turn : nat) | Done_ (outcome : Z).

(** What belongs to no lane and no session; no step of a lane changes it. *)
Record outside := Outside {
  o_config : config;
  o_groups : list nat;                     (** by lane: the first lane of its group *)
  o_homes : list (list Z);                 (** by session: its lanes, the home lane first *)
  o_versions : list N;                     (** by lane: how often its group's sessions changed *)
  o_limits : list (Z * Z);                 (** by session: coroutines, channels that it makes *)
  o_boundary : list event;                 (** last first *)
  o_frame : Z; o_next : Z; o_wave : Z;
  o_inputs : list (Z * Z);                 (** frame, length; to all sessions *)
  o_sampled : list Z;
  o_phase : phase;
  o_frames : list (list event * list (list event) * list row) }.  (** last first *)

Record world := World { w_lanes : list lane_state; w_sessions : list session; w_out : outside }.

Definition w_config w := o_config (w_out w).
Definition w_groups w := o_groups (w_out w).
Definition w_homes w := o_homes (w_out w).
Definition w_boundary w := o_boundary (w_out w).
Definition w_frame w := o_frame (w_out w).
Definition w_next w := o_next (w_out w).
Definition w_wave w := o_wave (w_out w).
Definition w_inputs w := o_inputs (w_out w).
Definition w_sampled w := o_sampled (w_out w).
Definition w_phase w := o_phase (w_out w).
Definition w_frames w := o_frames (w_out w).

Definition with_lanes v w := World v (w_sessions w) (w_out w).
Definition with_sessions v w := World (w_lanes w) v (w_out w).
Definition on_out (f : outside -> outside) w := World (w_lanes w) (w_sessions w) (f (w_out w)).
Definition with_homes h v := on_out (fun o => Outside (o_config o) (o_groups o) h v (o_limits o)
  (o_boundary o) (o_frame o) (o_next o) (o_wave o) (o_inputs o) (o_sampled o) (o_phase o)
  (o_frames o)).
Definition with_boundary v := on_out (fun o => Outside (o_config o) (o_groups o) (o_homes o)
  (o_versions o) (o_limits o) v (o_frame o) (o_next o) (o_wave o) (o_inputs o) (o_sampled o)
  (o_phase o) (o_frames o)).
Definition with_frame f n := on_out (fun o => Outside (o_config o) (o_groups o) (o_homes o)
  (o_versions o) (o_limits o) (o_boundary o) f n (o_wave o) (o_inputs o) (o_sampled o) (o_phase o)
  (o_frames o)).
Definition with_wave v := on_out (fun o => Outside (o_config o) (o_groups o) (o_homes o)
  (o_versions o) (o_limits o) (o_boundary o) (o_frame o) (o_next o) v (o_inputs o) (o_sampled o)
  (o_phase o) (o_frames o)).
Definition with_inputs v s := on_out (fun o => Outside (o_config o) (o_groups o) (o_homes o)
  (o_versions o) (o_limits o) (o_boundary o) (o_frame o) (o_next o) (o_wave o) v s (o_phase o)
  (o_frames o)).
Definition with_phase v := on_out (fun o => Outside (o_config o) (o_groups o) (o_homes o)
  (o_versions o) (o_limits o) (o_boundary o) (o_frame o) (o_next o) (o_wave o) (o_inputs o)
  (o_sampled o) v (o_frames o)).
Definition with_frames v := on_out (fun o => Outside (o_config o) (o_groups o) (o_homes o)
  (o_versions o) (o_limits o) (o_boundary o) (o_frame o) (o_next o) (o_wave o) (o_inputs o)
  (o_sampled o) (o_phase o) v).

Definition no_settings : settings := Settings Cooperative 1 false costs_v1.
Definition no_lane : lane_state := LaneState (new_lane no_settings) [] [] [] 0 0 false.
Definition no_session : session :=
  Session 0 1 2 false [] [] [] 0 0 [] [] [] [] [] 0 0 None false 0.
Definition no_channel : channel := Channel 1 [] [] [] [] 0 true None.
Definition no_task : task := Task 0 false 0 Free.

Definition at_lane (w : world) (i : Z) : lane_state := nth (Z.to_nat i) (w_lanes w) no_lane.
Definition on_lane (i : Z) (f : lane_state -> lane_state) (w : world) : world :=
  with_lanes (Lanes.set_nth (Z.to_nat i) (f (at_lane w i)) (w_lanes w)) w.
Definition lanes_of (w : world) (s : Z) : list Z := nth (Z.to_nat s) (w_homes w) [].
(** The first lane of the group of a lane, and of a session [14]. *)
Definition group_at (o : outside) (l : nat) : nat := nth l (o_groups o) l.
Definition owner_at (o : outside) (s : nat) : nat :=
  group_at o (Z.to_nat (hd 0 (nth s (o_homes o) []))).
Definition limits_of (w : world) (s : Z) : Z * Z := nth (Z.to_nat s) (o_limits (w_out w)) (0, 0).
Definition at_session (w : world) (s : Z) : session := nth (Z.to_nat s) (w_sessions w) no_session.
Definition on_session (s : Z) (f : session -> session) (w : world) : world :=
  with_sessions (Lanes.set_nth (Z.to_nat s) (f (at_session w s)) (w_sessions w)) w.

Definition set_kernel v l :=
  LaneState v (l_log l) (l_outbox l) (l_credits l) (l_mark l) (l_fresh l) (l_open l).
Definition set_credits v l :=
  LaneState (l_kernel l) (l_log l) (l_outbox l) v (l_mark l) (l_fresh l) (l_open l).
Definition set_mark v l :=
  LaneState (l_kernel l) (l_log l) (l_outbox l) (l_credits l) v (l_fresh l) (l_open l).
Definition log_event e l :=
  LaneState (l_kernel l) (e :: l_log l) (l_outbox l) (l_credits l) (l_mark l) (l_fresh l) (l_open
      l).
Definition set_log v l :=
  LaneState (l_kernel l) v (l_outbox l) (l_credits l) (l_mark l) (l_fresh l) (l_open l).
Definition set_outbox v l :=
  LaneState (l_kernel l) (l_log l) v (l_credits l) (l_mark l) (l_fresh l) (l_open l).
Definition take_fresh l :=
  LaneState (l_kernel l) (l_log l) (l_outbox l) (l_credits l) (l_mark l) (l_fresh l + 1) (l_open l).
Definition set_open b l :=
  LaneState (l_kernel l) (l_log l) (l_outbox l) (l_credits l) (l_mark l) (l_fresh l) b.
Definition on_kernel (f : lane -> lane) l := set_kernel (f (l_kernel l)) l.

Definition log (i : Z) (e : event) (w : world) : world := on_lane i (log_event e) w.
Definition post (i to : Z) (e : effect) (w : world) : world :=
  on_lane i (fun l => set_outbox ((to, e) :: l_outbox l) l) w.
Definition emit (e : event) (w : world) : world := with_boundary (e :: w_boundary w) w.

Definition set_tasks v s := Session (s_priority s) (s_weight s) (s_class s)
  (s_pinned s) (s_programs s) v (s_free s) (s_occupied s) (s_live s) (s_channels s) (s_ports s)
  (s_handles s) (s_memory s) (s_input s) (s_output s) (s_exit s) (s_ended s) (s_first_faulted s)
  (s_unjoined s).
Definition set_counts free occupied live_ s := Session (s_priority s) (s_weight s)
  (s_class s) (s_pinned s) (s_programs s) (s_tasks s) free occupied live_ (s_channels s)
  (s_ports s) (s_handles s) (s_memory s) (s_input s) (s_output s) (s_exit s) (s_ended s)
  (s_first_faulted s) (s_unjoined s).
Definition set_channels v s := Session (s_priority s) (s_weight s) (s_class s)
  (s_pinned s) (s_programs s) (s_tasks s) (s_free s) (s_occupied s) (s_live s) v (s_ports s)
  (s_handles s) (s_memory s) (s_input s) (s_output s) (s_exit s) (s_ended s) (s_first_faulted s)
  (s_unjoined s).
Definition set_ports v s := Session (s_priority s) (s_weight s) (s_class s)
  (s_pinned s) (s_programs s) (s_tasks s) (s_free s) (s_occupied s) (s_live s) (s_channels s) v
  (s_handles s) (s_memory s) (s_input s) (s_output s) (s_exit s) (s_ended s) (s_first_faulted s)
  (s_unjoined s).
Definition set_handles v s := Session (s_priority s) (s_weight s) (s_class s)
  (s_pinned s) (s_programs s) (s_tasks s) (s_free s) (s_occupied s) (s_live s) (s_channels s)
  (s_ports s) v (s_memory s) (s_input s) (s_output s) (s_exit s) (s_ended s) (s_first_faulted s)
  (s_unjoined s).
Definition set_memory v s := Session (s_priority s) (s_weight s) (s_class s)
  (s_pinned s) (s_programs s) (s_tasks s) (s_free s) (s_occupied s) (s_live s) (s_channels s)
  (s_ports s) (s_handles s) v (s_input s) (s_output s) (s_exit s) (s_ended s) (s_first_faulted s)
  (s_unjoined s).
Definition set_input v s := Session (s_priority s) (s_weight s) (s_class s)
  (s_pinned s) (s_programs s) (s_tasks s) (s_free s) (s_occupied s) (s_live s) (s_channels s)
  (s_ports s) (s_handles s) (s_memory s) v (s_output s) (s_exit s) (s_ended s)
  (s_first_faulted s) (s_unjoined s).
Definition set_end exit_ ended_ faulted unjoined s := Session (s_priority s)
  (s_weight s) (s_class s) (s_pinned s) (s_programs s) (s_tasks s) (s_free s) (s_occupied s)
  (s_live s) (s_channels s) (s_ports s) (s_handles s) (s_memory s) (s_input s) (s_output s)
  exit_ ended_ faulted unjoined.
Definition add_unjoined n s := set_end (s_exit s) (s_ended s) (s_first_faulted s)
  (s_unjoined s + n) s.

(** ** Tasks [10] *)

Definition task_at (s : session) (slot : Z) : task := nth (Z.to_nat slot) (s_tasks s) no_task.
Definition on_task (slot : Z) (f : task -> task) (s : session) : session :=
  set_tasks (Lanes.set_nth (Z.to_nat slot) (f (task_at s slot)) (s_tasks s)) s.
Definition set_state v t := Task (k_generation t) (k_detached t) (k_lane t) v.

Definition live_at (s : session) (slot : Z) : option live :=
  match k_state (task_at s slot) with Alive x => Some x | _ => None end.
Definition on_live (slot : Z) (f : live -> live) (s : session) : session :=
  match live_at s slot with Some x => on_task slot (set_state (Alive (f x))) s | None => s end.
Definition set_wait v x := Live (kernel x) v (joiners x) (body x).
Definition set_body v x := Live (kernel x) (waits x) (joiners x) v.
Definition set_joiners v x := Live (kernel x) (waits x) v (body x).
Definition set_reference v x := Live v (waits x) (joiners x) (body x).

Definition reference_at (s : session) (slot : Z) : reference :=
  (slot, k_generation (task_at s slot)).

Inductive named := Stale_ | IsLive | HasEnded_ (status value : Z).

Definition named_by (s : session) (r : reference) : named :=
  if (fst r <? Z.of_nat (length (s_tasks s))) && (k_generation (task_at s (fst r)) =? snd r) then
    match k_state (task_at s (fst r)) with
    | Free => Stale_
    | Alive _ => IsLive
    | Over st v => HasEnded_ st v
    end
  else Stale_.

Definition release_slot (slot : Z) (s : session) : session :=
  set_counts (slot :: s_free s) (s_occupied s - 1) (s_live s)
    (on_task slot (fun t => Task (k_generation t + 1) (k_detached t) (k_lane t) Free) s).

Definition to_guest (r : reference) : Z := snd r * two32 + fst r.
Definition from_guest (n : Z) : option reference :=
  let v := signed n in
  if v <? 0 then None else Some (v mod two32, v / two32).

Definition finished := 0. Definition faulted := 1. Definition canceled := 2.
Definition join_code (status : Z) : Z :=
  if status =? finished then 0 else if status =? faulted then e_faulted else e_canceled.

(** A join has read the result. *)
Definition joined (slot : Z) (s : session) : session :=
  let s1 := match k_state (task_at s slot) with
            | Over st _ => if st =? faulted then add_unjoined (-1) s else s
            | _ => s
            end in
  release_slot slot s1.

Definition end_in_table (slot status value : Z) (s : session) : session :=
  let s1 := set_counts (s_free s) (s_occupied s) (s_live s - 1)
              (on_task slot (set_state (Over status value)) s) in
  let s2 := if status =? faulted then add_unjoined 1 s1 else s1 in
  if k_detached (task_at s2 slot) then release_slot slot s2 else s2.

(** ** Channels *)

Definition channel_at (w : world) (c : place_of_channel) : channel :=
  nth (Z.to_nat (snd c)) (s_channels (at_session w (fst c))) no_channel.
Definition on_channel (c : place_of_channel) (f : channel -> channel) (w : world) : world :=
  on_session (fst c)
    (fun s => set_channels (Lanes.set_nth (Z.to_nat (snd c)) (f (channel_at w c)) (s_channels s)) s)
    w.

Definition set_queue v c := Channel (c_capacity c) v (c_receivers c) (c_senders c) (c_selectors c)
  (c_ticket c) (c_closed c) (c_wiring c).
Definition set_receivers v c := Channel (c_capacity c) (c_queue c) v (c_senders c) (c_selectors c)
  (c_ticket c) (c_closed c) (c_wiring c).
Definition set_senders v c := Channel (c_capacity c) (c_queue c) (c_receivers c) v (c_selectors c)
  (c_ticket c) (c_closed c) (c_wiring c).
Definition set_selectors v c := Channel (c_capacity c) (c_queue c) (c_receivers c) (c_senders c) v
  (c_ticket c) (c_closed c) (c_wiring c).
Definition next_ticket c := Channel (c_capacity c) (c_queue c) (c_receivers c) (c_senders c)
  (c_selectors c) (c_ticket c + 1) (c_closed c) (c_wiring c).
Definition shut c := Channel (c_capacity c) (c_queue c) (c_receivers c) (c_senders c)
  (c_selectors c) (c_ticket c) true (c_wiring c).
Definition set_wiring v c := Channel (c_capacity c) (c_queue c) (c_receivers c) (c_senders c)
  (c_selectors c) (c_ticket c) (c_closed c) v.

Definition without (ticket : Z) {A} (l : list (Z * A)) : list (Z * A) :=
  filter (fun e => negb (fst e =? ticket)) l.

(** The share of a lane when [free] places are divided [27]. *)
Fixpoint index_from (n x : Z) (l : list Z) : option Z :=
  match l with [] => None | y :: r => if x =? y then Some n else index_from (n + 1) x r end.

Definition share_of (free : Z) (lanes : list Z) (me wave machine : Z) : Z :=
  match index_from 0 me lanes with
  | None => 0
  | Some i =>
      let n := count lanes in
      let first := count (filter (fun l => l <? wave mod Z.max 1 machine) lanes) in
      let place := (i + n - first mod n) mod n in
      free / n + (if place <? free mod n then 1 else 0)
  end.

Definition room (c : channel) : Z := Z.max 0 (c_capacity c - count (c_queue c)).

Definition local_room (w : world) (c : channel) : Z :=
  match c_wiring c with
  | None => room c
  | Some x =>
      let mine := share_of (x_free x) (x_lanes x) (x_home x) (w_wave w) (f_lanes (w_config w)) in
      Z.max 0 (room c - (x_free x - mine))
  end.

Definition set_touched (b : bool) (x : wiring) : wiring :=
  Wiring (x_lanes x) (x_home x) (x_free x) (x_open x) b.

Definition touch (c : place_of_channel) (w : world) : world :=
  on_channel c (fun x => set_wiring (option_map (set_touched true) (c_wiring x)) x) w.

Fixpoint find_credit (c : place_of_channel) (l : list credit) : option credit :=
  match l with
  | [] => None
  | d :: r => if same_channel (d_channel d) c then Some d else find_credit c r
  end.

Definition on_credit (c : place_of_channel) (f : credit -> credit) (l : lane_state) : lane_state :=
  set_credits (map (fun d => if same_channel (d_channel d) c then f d else d) (l_credits l)) l.

(** ** Waits and wakes *)

Definition code_of_source (s : wake_source) : Z := Z.of_nat (source_code s).
Definition code_of_reason (r : block_reason) : Z := Z.of_nat (block_code r).

Definition wake_here (i s slot : Z) (r : reference) (src : wake_source) (w : world) : world :=
  on_lane i (on_kernel (fun l => snd (wake l r src))) (log i [3; s; slot; code_of_source src] w).

(** Ends a wait with an answer: on its own lane at once, on another at the wave's end. *)
Definition answer (i s slot : Z) (a : wait_state) (src : wake_source) (w : world) : world :=
  match live_at (at_session w s) slot with
  | None => w
  | Some x =>
      let home := k_lane (task_at (at_session w s) slot) in
      let w1 := on_session s (on_live slot (set_wait a)) w in
      if home =? i then
        match kernel x with Some r => wake_here i s slot r src w1 | None => w1 end
      else post i home (WakeUp (s, slot, k_generation (task_at (at_session w s) slot)) src) w1
  end.

(** Direct handoff [35]. *)
Definition hand_over (i s slot : Z) (w : world) : world :=
  let t := task_at (at_session w s) slot in
  if f_handoff (w_config w) && (k_lane t =? i) then
    match live_at (at_session w s) slot with
    | Some x => match kernel x with
                | Some r => on_lane i (on_kernel (fun l => snd (prefer l r))) w
                | None => w
                end
    | None => w
    end
  else w.

(** Removes a coroutine from the selectors of all channels it waits on. *)
Definition leave_selectors (s : Z) (on : list (Z * Z)) (w : world) : world :=
  fold_left (fun w e => on_channel (s, fst e)
               (fun c => set_selectors (without (snd e) (c_selectors c)) c) w) on w.

(** The first position at which a channel was named. *)
Definition position_of (index : Z) (on : list (Z * Z)) : Z :=
  match index_from 0 index (map fst on) with Some n => n | None => 0 end.

Fixpoint wake_selectors (fuel : nat) (i : Z) (c : place_of_channel) (w : world) : world :=
  match fuel, c_selectors (channel_at w c) with
  | S k, (_, slot) :: rest =>
      let w1 := on_channel c (set_selectors rest) w in
      match live_at (at_session w1 (fst c)) slot with
      | Some x =>
          match waits x with
          | WSelecting on =>
              let w2 := leave_selectors (fst c) on w1 in
              wake_selectors k i c
                (answer i (fst c) slot (WCode (position_of (snd c) on)) FromChannel w2)
          | _ => wake_selectors k i c w1
          end
      | None => wake_selectors k i c w1
      end
  | _, _ => w
  end.

Definition selectors_of (w : world) (c : place_of_channel) : nat :=
  length (c_selectors (channel_at w c)).

(** Queued messages go to blocked receivers. A queue that gets empty wakes no selector. *)
Fixpoint serve_receivers (fuel : nat) (i : Z) (c : place_of_channel) (w : world) : world :=
  match fuel, c_queue (channel_at w c) with
  | _, [] | O, _ => w
  | S k, m :: queue =>
      match c_receivers (channel_at w c) with
      | [] => wake_selectors (selectors_of w c) i c w
      | (_, slot) :: rest =>
          let w1 := on_channel c (fun x => set_queue queue (set_receivers rest x)) w in
          let w2 := answer i (fst c) slot (WNumber m) FromChannel w1 in
          serve_receivers k i c (hand_over i (fst c) slot w2)
      end
  end.

Definition deliver (i : Z) (c : place_of_channel) (m : Z) (w : world) : world :=
  let w1 := on_channel c (fun x => set_queue (c_queue x ++ [m]) x) w in
  touch c (serve_receivers (S (length (c_queue (channel_at w1 c)))) i c w1).

(** A receiver made room: waiting senders of this lane enter. *)
Fixpoint admit_senders (fuel : nat) (i : Z) (c : place_of_channel) (w : world) : world :=
  match fuel, c_senders (channel_at w c) with
  | S k, (_, q) :: rest =>
      if q_local q && (0 <? local_room w (channel_at w c)) then
        let '(s, slot, _) := q_name q in
        let w1 := deliver i c (q_message q) (on_channel c (set_senders rest) w) in
        admit_senders k i c (answer i s slot (WCode 0) FromChannel w1)
      else w
  | _, _ => w
  end.

Fixpoint refuse_receivers (fuel : nat) (i : Z) (c : place_of_channel) (w : world) : world :=
  match fuel, c_receivers (channel_at w c) with
  | S k, (_, slot) :: rest =>
      refuse_receivers k i c
        (answer i (fst c) slot (WCode e_closed) FromChannel (on_channel c (set_receivers rest) w))
  | _, _ => w
  end.

Definition close_channel (i : Z) (c : place_of_channel) (w : world) : world :=
  if c_closed (channel_at w c) then w
  else
    let w1 := touch c (log i [8; fst c; snd c] (on_channel c shut w)) in
    let w2 := match c_queue (channel_at w1 c) with
              | [] => refuse_receivers (length (c_receivers (channel_at w1 c))) i c w1
              | _ => w1
              end in
    let w3 := wake_selectors (selectors_of w2 c) i c w2 in
    let leaving := filter (fun e => q_local (snd e)) (c_senders (channel_at w3 c)) in
    let staying := filter (fun e => negb (q_local (snd e))) (c_senders (channel_at w3 c)) in
    fold_left (fun w e => let '(s, slot, _) := q_name (snd e) in
                 answer i s slot (WCode e_closed) FromChannel w)
      leaving (on_channel c (set_senders staying) w3).

(** A wired sender left: the channel closes with the last one [28]. *)
Definition sender_left (i : Z) (c : place_of_channel) (w : world) : world :=
  match c_wiring (channel_at w c) with
  | None => w
  | Some x =>
      let n := x_open x - 1 in
      let w1 := on_channel c (set_wiring (Some (Wiring (x_lanes x) (x_home x) (x_free x) n
          (x_touched x)))) w in
      if n =? 0 then close_channel i c w1 else w1
  end.

Definition no_port : port := Port (0, 0) 0 true.
Definition port_at (s : session) (p : Z) : port := nth (Z.to_nat p) (s_ports s) no_port.

Definition close_port (i s p : Z) (w : world) : world :=
  let x := port_at (at_session w s) p in
  if p_closed x then w
  else
    let c := p_channel x in
    let shut_ := Lanes.set_nth (Z.to_nat p) (Port c (p_home x) true) in
    let w1 := on_session s (fun t => set_ports (shut_ (s_ports t)) t) w in
    let w2 := log i [8; fst c; snd c] w1 in
    if p_home x =? i then sender_left i c w2 else post i (p_home x) (ClosePort c) w2.

(** ** Ends *)

Definition numbers_below (n : nat) : list Z := map Z.of_nat (seq 0 n).

(** The first coroutine was canceled, and no join has read it [70]. *)
Definition first_canceled (s : session) : bool :=
  match s_tasks s with
  | x :: _ => match k_state x with
      | Over status _ => (k_generation x =? 0) && (status =? 2)
      | _ => false
      end
  | [] => false
  end.

Definition verdict (s : session) : Z :=
  if s_first_faulted s || (0 <? s_unjoined s) then 1 else if first_canceled s then 5 else 0.

Definition end_session_ (i s : Z) (w : world) : world :=
  let x := at_session w s in
  let out := verdict x in
  let w1 := on_session s (fun t =>
              set_end (s_exit t) (Some out) (s_first_faulted t) (s_unjoined t) t) w in
  let w2 := log i [15; s; out; s_exit x mod two32] w1 in
  let w3 := fold_left (fun w k => close_channel i (s, k) w)
              (numbers_below (length (s_channels x))) w2 in
  let w4 := fold_left (fun w p => close_port i s p w) (numbers_below (length (s_ports x))) w3 in
  on_session s (fun t => set_counts [] 0 0 (set_tasks [] t)) w4.

Definition end_task (i s slot status value : Z) (w : world) : world :=
  let waiting := match live_at (at_session w s) slot with Some x => joiners x | None => [] end in
  let r := reference_at (at_session w s) slot in
  let w1 := log i [10; s; slot; status; value] w in
  let w2 := on_session s (end_in_table slot status value) w1 in
  let told := if join_code status =? 0 then WNumber value else WCode (join_code status) in
  let w3 := fold_left (fun w j => answer i s j told FromJoin w) waiting w2 in
  let w4 :=
    match waiting with
    | [] => w3
    | _ => on_session s (fun t => match named_by t r with
                                  | Stale_ => if status =? faulted then add_unjoined (-1) t else t
                                  | _ => joined slot t
                                  end) w3
    end in
  if s_live (at_session w4 s) =? 0 then end_session_ i s w4 else w4.

Definition pending_op (x : live) : op :=
  match g_code (body x) with k :: _ => i_op k | [] => OReturn end.

(** Out of the queues it waits in. *)
Definition leave_queues (i s slot : Z) (w : world) : world :=
  match live_at (at_session w s) slot with
  | None => w
  | Some x =>
      let w1 := on_session s (on_live slot (set_wait WNone)) w in
      let leave_channel h t :=
        match nth_error (s_handles (at_session w s)) (Z.to_nat h) with
        | None => w1
        | Some (Own_ k) =>
            match pending_op x with
            | OSend _ => on_channel (s, k) (fun c => set_senders (without t (c_senders c)) c) w1
            | _ => on_channel (s, k) (fun c => set_receivers (without t (c_receivers c)) c) w1
            end
        | Some (Port_ p) =>
            let o := port_at (at_session w s) p in
            if p_home o =? i
            then on_channel (p_channel o) (fun c => set_senders (without t (c_senders c)) c) w1
            else post i (p_home o) (Withdraw (p_channel o) t) w1
        end in
      match waits x, pending_op x with
      | (WQueued t | WTaking t), (OSend h | ORecv h _) => leave_channel h t
      | WSelecting on, _ => leave_selectors s on w1
      | WJoining target, _ =>
          on_session s (on_live target (fun y =>
            set_joiners (filter (fun j => negb (j =? slot)) (joiners y)) y)) w1
      | _, _ => w1
      end
  end.

(** The end of a coroutine that does not run. *)
Definition cancel_task (i s slot : Z) (w : world) : world :=
  let w1 := log i [12; s; slot] w in
  let r := match live_at (at_session w s) slot with Some x => kernel x | None => None end in
  let on_it f w := match r with
                   | Some r => on_lane i (on_kernel (fun l => f l r)) w
                   | None => w
                   end in
  let w2 := on_it (fun l r => snd (cancel l r)) w1 in
  let w3 := on_it (fun l r => snd (reap l r)) (leave_queues i s slot w2) in
  end_task i s slot canceled 0 w3.

(** ** Host operations *)

(** What an operation did: the call returns a value; the slice ends; the coroutine ends. *)
Inductive done :=
| Value (v : Z)
| Stops (o : outcome)
| Exits (v : Z)
| Unpaid.

Definition block_on (i s slot : Z) (x : wait_state) (r : block_reason) (a b : Z) (w : world)
    : done * world :=
  (Stops (Blocks r),
   log i [5; code_of_reason r; a; b] (on_session s (on_live slot (set_wait x)) w)).

Definition handle_of (s : session) (h : Z) : option handle :=
  if h <? 0 then None else nth_error (s_handles s) (Z.to_nat h).

Inductive route := Here (c : place_of_channel) | Away (c : place_of_channel) (home : Z).

Definition route_of (i s h : Z) (w : world) : Z + route :=
  match handle_of (at_session w s) h with
  | None => inl e_invalid
  | Some (Own_ k) => if c_closed (channel_at w (s, k)) then inl e_closed else inr (Here (s, k))
  | Some (Port_ p) =>
      let o := port_at (at_session w s) p in
      if p_closed o then inl e_closed
      else if p_home o =? i then
        if c_closed (channel_at w (p_channel o)) then inl e_closed
        else inr (Here (p_channel o))
      else
        match find_credit (p_channel o) (l_credits (at_lane w i)) with
        | Some d => if d_closed d then inl e_closed else inr (Away (p_channel o) (p_home o))
        | None => inl e_closed
        end
  end.

(** Spends a credit of this lane, if any is left in this wave. *)
Definition take_credit (i : Z) (c : place_of_channel) (w : world) : bool * world :=
  match find_credit c (l_credits (at_lane w i)) with
  | None => (false, w)
  | Some d =>
      let used := if d_wave d =? w_wave w then d_used d else 0 in
      let may := used <? share_of (d_free d) (d_lanes d) i (w_wave w) (f_lanes (w_config w)) in
      let d1 := Credit c (d_lanes d) (d_free d) (if may then used + 1 else used) (w_wave w)
                  (d_closed d) in
      (may, on_lane i (on_credit c (fun _ => d1)) w)
  end.

Definition send_op (i s slot h m : Z) (blocks : bool) (w : world) : done * world :=
  match route_of i s h w with
  | inl code => (Value code, w)
  | inr to =>
      let '(fits, w1) := match to with
                         | Here c => (match c_senders (channel_at w c) with
                                      | [] => 0 <? local_room w (channel_at w c)
                                      | _ => false
                                      end, w)
                         | Away c _ => take_credit i c w
                         end in
      if negb fits && negb blocks then (Value e_again, w1)
      else
        let c := match to with Here c => c | Away c _ => c end in
        let me := (s, slot, k_generation (task_at (at_session w s) slot)) in
        let w2 := log i [6; fst c; snd c] w1 in
        match to, fits with
        | Here c, true => (Value 0, deliver i c m w2)
        | Here c, false =>
            let w3 := on_channel c next_ticket w2 in
            let t := c_ticket (channel_at w3 c) in
            let '(d, w4) := block_on i s slot (WQueued t) ChannelSend (fst c) (snd c) w3 in
            (d, touch c (on_channel c (fun x =>
                  set_senders (c_senders x ++ [(t, WaitingSender me true m)]) x) w4))
        | Away c home, true => (Value 0, post i home (Message c m) w2)
        | Away c home, false =>
            let '(d, w3) := block_on i s slot WLane ChannelSend (fst c) (snd c) w2 in
            (d, post i home (WaitToSend c me m) w3)
        end
  end.

Definition own_channel (s : session) (h : Z) : Z + Z :=
  match handle_of s h with
  | None => inl e_invalid
  | Some (Port_ _) => inl e_denied
  | Some (Own_ k) => inr k
  end.

Definition recv_op (i s slot h to : Z) (blocks : bool) (w : world) : done * world :=
  match own_channel (at_session w s) h with
  | inl code => (Value code, w)
  | inr k =>
      let c := (s, k) in
      let x := channel_at w c in
      match c_queue x with
      | [] =>
          if c_closed x then (Value e_closed, w)
          else if negb blocks then (Value e_again, w)
          else
            let w1 := on_channel c next_ticket w in
            let t := c_ticket (channel_at w1 c) in
            block_on i s slot (WTaking t) ChannelReceive s k
              (on_channel c (fun x => set_receivers (c_receivers x ++ [(t, slot)]) x) w1)
      | m :: queue =>
          let w1 := on_channel c (set_queue queue) w in
          let w2 := on_session s (fun t => set_memory (set_cell (s_memory t) to m) t) w1 in
          let w3 := log i [7; s; k] (touch c w2) in
          (Value 0, admit_senders (length (c_senders (channel_at w3 c))) i c w3)
      end
  end.

Definition used_by (w : world) (s slot : Z) : Z :=
  match live_at (at_session w s) slot with Some x => g_used (body x) | None => 0 end.

(** Pays the price of a size, as far as the slice's cycles go [5]. *)
Definition pay (i s slot began cost : Z) (w : world) : bool * world :=
  match live_at (at_session w s) slot with
  | None => (true, w)
  | Some x =>
      let g := body x in
      let left_ := left_of (l_kernel (at_lane w i)) (g_used g - began) in
      let missing := Z.max 0 (cost - g_paid g) in
      let pays := Z.min missing left_ in
      let g1 := Guest (g_code g) (g_stage g) (g_sum g) (g_result g) (g_values g) (g_used g + pays)
                  (g_paid g + pays) in
      (pays =? missing, on_session s (on_live slot (set_body g1)) w)
  end.

Definition eights (n : Z) : Z := (n + 7) / 8.

Fixpoint own_channels (s : session) (hs : list Z) : Z + list Z :=
  match hs with
  | [] => inr []
  | h :: r =>
      match own_channel s h with
      | inl code => inl code
      | inr k => match own_channels s r with inl code => inl code | inr ks => inr (k :: ks) end
      end
  end.

Fixpoint first_receivable (n : Z) (w : world) (s : Z) (ks : list Z) : option Z :=
  match ks with
  | [] => None
  | k :: r =>
      let c := channel_at w (s, k) in
      if c_closed c || negb (match c_queue c with [] => true | _ => false end) then Some n
      else first_receivable (n + 1) w s r
  end.

Fixpoint push_selectors (s slot : Z) (ks : list Z) (w : world) : list (Z * Z) * world :=
  match ks with
  | [] => ([], w)
  | k :: r =>
      let w1 := on_channel (s, k) next_ticket w in
      let t := c_ticket (channel_at w1 (s, k)) in
      let w2 := on_channel (s, k) (fun c => set_selectors (c_selectors c ++ [(t, slot)]) c) w1 in
      let '(rest, w3) := push_selectors s slot r w2 in
      ((k, t) :: rest, w3)
  end.

Definition select_op (i s slot began : Z) (hs : list Z) (w : world) : done * world :=
  let '(paid, w1) := pay i s slot began (eights (4 * count hs) * 4) w in
  if negb paid then (Unpaid, w1)
  else
    match own_channels (at_session w1 s) hs with
    | inl code => (Value code, w1)
    | inr ks =>
        match first_receivable 0 w1 s ks with
        | Some n => (Value n, w1)
        | None =>
            let '(on, w2) := push_selectors s slot ks w1 in
            block_on i s slot (WSelecting on) Select s (hd 0 ks) w2
        end
    end.

Definition publish (i s slot : Z) (w : world) : reference * world :=
  let x := at_session w s in
  let r := (l_fresh (at_lane w i), 0) in
  let of_sessions := match f_policy (w_config w) with FairShare _ _ b => b | _ => false end in
  (* Where sessions share the lane, the coroutines of one are equals. *)
  let '(weight, class) := if of_sessions then (1024, 2) else (s_weight x, s_class x) in
  (r, on_lane i (fun l => on_kernel (fun k =>
        snd (spawn k r (s * two32 + slot) (s_priority x) weight class
               (Fair.fresh_luggage (s_weight x) (s_class x))))
        (take_fresh l)) w).

Definition next_slot (s : session) : Z :=
  match s_free s with k :: _ => k | [] => count (s_tasks s) end.

(** A coroutine in the table: in the slot that was freed last, or a new one. *)
Definition insert_task (lane_ : Z) (x : live) (s : session) : session :=
  match s_free s with
  | k :: r =>
      set_counts r (s_occupied s + 1) (s_live s + 1)
        (on_task k (fun t => Task (k_generation t) false lane_ (Alive x)) s)
  | [] =>
      set_counts [] (s_occupied s + 1) (s_live s + 1)
        (set_tasks (s_tasks s ++ [Task 0 false lane_ (Alive x)]) s)
  end.

Definition spawn_op (i s e : Z) (on : option Z) (w : world) : done * world :=
  let x := at_session w s in
  let target := match on with None => i | Some l => l end in
  if match on with None => false | Some l => negb (memb l (lanes_of w s)) end
  then (Value e_denied, w)
  else
    match (if e <? 0 then None else nth_error (s_programs x) (Z.to_nat e)) with
    | None => (Value e_invalid, w)
    | Some p =>
        if fst (limits_of w s) <=? s_occupied x then (Value e_limit, w)
        else
          let slot := next_slot x in
          let '(k, w1) := if target =? i
                          then let '(r, w1) := publish i s slot w in (Some r, w1)
                          else (None, w) in
          let g := start_guest p (e + 1) in
          let w2 := on_session s (insert_task target (Live k WNone [] g)) w1 in
          let r := reference_at (at_session w2 s) slot in
          let w3 := log i [2; s; slot; snd r; target] w2 in
          (Value (to_guest r),
           if target =? i then w3 else post i target (Publish (s, slot, snd r)) w3)
    end.

(** What [join] and [cancel] name, which is not the caller. *)
Definition other (s : session) (slot v : Z) : Z + (reference * named) :=
  match from_guest v with
  | None => inl e_invalid
  | Some r =>
      if same_reference r (reference_at s slot) then inl e_invalid
      else match named_by s r with
           | Stale_ => inl e_stale
           | n => inr (r, n)
           end
  end.

Definition join_op (i s slot v to : Z) (w : world) : done * world :=
  match other (at_session w s) slot v with
  | inl code => (Value code, w)
  | inr (r, HasEnded_ st value) =>
      let w1 := on_session s (joined (fst r)) w in
      (Value (join_code st),
       if st =? finished
       then on_session s (fun t => set_memory (set_cell (s_memory t) to value) t) w1
       else w1)
  | inr (r, _) =>
      let w1 := on_session s (on_live (fst r) (fun x => set_joiners (joiners x ++ [slot]) x)) w in
      block_on i s slot (WJoining (fst r)) Join s (fst r) w1
  end.

Definition cancel_op (i s slot v : Z) (w : world) : done * world :=
  match other (at_session w s) slot v with
  | inl code => (Value code, w)
  | inr (r, IsLive) =>
      let t := task_at (at_session w s) (fst r) in
      if k_lane t =? i then (Value 0, cancel_task i s (fst r) w)
      else
        let me := (s, slot, k_generation (task_at (at_session w s) slot)) in
        block_on i s slot WLane OtherLane s (fst r)
          (post i (k_lane t) (CancelIt (s, fst r, snd r) me) w)
  | inr _ => (Value 0, w)
  end.

Definition detach_op (s v : Z) (w : world) : done * world :=
  match from_guest v with
  | None => (Value e_invalid, w)
  | Some r =>
      match named_by (at_session w s) r with
      | Stale_ => (Value e_stale, w)
      | n =>
          let mark t := Task (k_generation t) true (k_lane t) (k_state t) in
          let w1 := on_session s (on_task (fst r) mark) w in
          (Value 0, match n with
                    | HasEnded_ _ _ => on_session s (release_slot (fst r)) w1
                    | _ => w1
                    end)
      end
  end.

Definition close_op (i s h : Z) (w : world) : done * world :=
  match handle_of (at_session w s) h with
  | None => (Value e_invalid, w)
  | Some (Own_ k) =>
      if c_closed (channel_at w (s, k)) then (Value e_closed, w)
      else (Value 0, close_channel i (s, k) w)
  | Some (Port_ p) =>
      if p_closed (port_at (at_session w s) p) then (Value e_closed, w)
      else (Value 0, close_port i s p w)
  end.

Definition make_op (i s capacity : Z) (w : world) : done * world :=
  if capacity <? 1 then (Value e_invalid, w)
  else
    let x := at_session w s in
    let k := count (s_channels x) in
    if snd (limits_of w s) <=? k then (Value e_limit, w)
    else
    let w1 := on_session s (fun t =>
                set_handles (s_handles t ++ [Own_ k])
                  (set_channels (s_channels t ++ [Channel capacity [] [] [] [] 0 false None]) t))
                w in
    (Value (count (s_handles x)), log i [9; k; capacity] w1).

Definition input_op (i s slot began room_ : Z) (w : world) : done * world :=
  match s_input (at_session w s) with
  | [] => (Value 0, w)
  | n :: rest =>
      if room_ <? n then (Value e_size, w)
      else
        let '(paid, w1) := pay i s slot began (eights n) w in
        if negb paid then (Unpaid, w1)
        else (Value n, log i [14; s; n] (on_session s (set_input rest) w1))
  end.

Definition output_op (i s slot began cell : Z) (w : world) : done * world :=
  let '(paid, w1) := pay i s slot began 1 w in
  if negb paid then (Unpaid, w1)
  else (Value 0, log i [13; s; 8; cell_at (s_memory (at_session w1 s)) cell] w1).

Definition frame_end_of (w : world) : Z := (w_frame w + 1) * f_frame_cycles (w_config w).

Definition perform (i s slot began : Z) (o : op) (vs : list Z) (w : world) : done * world :=
  let v := nth 0 vs 0 in
  match o with
  | OYield => (Stops Yielded, w)
  | OSleep n =>
      if n <=? 0 then (Stops Yielded, w)
      else (Stops (Slept (w_frame w + n)), log i [4; n] w)
  | OSpawn e => spawn_op i s e None w
  | OSpawnOn e l => spawn_op i s e (Some l) w
  | OJoin _ to => join_op i s slot v to w
  | OCancel _ => cancel_op i s slot v w
  | ODetach _ => detach_op s v w
  | OExit => (Exits v, w)
  | OSend h => send_op i s slot h v true w
  | OTrySend h => send_op i s slot h v false w
  | ORecv h to => recv_op i s slot h to true w
  | OTryRecv h to => recv_op i s slot h to false w
  | OClose h => close_op i s h w
  | OMake c => make_op i s c w
  | OSelect hs => select_op i s slot began hs w
  | OOutput c => output_op i s slot began c w
  | OInput room_ => input_op i s slot began room_ w
  | ORemaining =>
      let now_ := now (l_kernel (at_lane w i)) + (used_by w s slot - began) in
      (Value (Z.max 0 (frame_end_of w - now_)), w)
  | OWork _ _ | OFault | OReturn => (Value 0, w)
  end.

(** ** Slices *)

(** How a slice ends. *)
Inductive flow :=
| Goes
| NoCycles
| StopsWith (o : outcome)
| ExitsWith (v : Z)
| FaultsNow.

Definition resume_with (s slot r : Z) (w : world) : world :=
  on_session s (on_live slot (fun x => set_body (next_instruction r (body x)) x)) w.

(** The value of the session's first coroutine is its exit code. *)
Definition note_exit (slot v : Z) (s : session) : session :=
  if same_reference (reference_at s slot) (0, 0)
  then set_end (v mod two32) (s_ended s) (s_first_faulted s) (s_unjoined s) s
  else s.

Definition host_operation (i s slot began : Z) (o : op) (w : world) : flow * world :=
  let vs := match live_at (at_session w s) slot with Some x => g_values (body x) | None => [] end in
  (* A yield or a sleep has its result before the slice ends. *)
  let w0 := match o with OYield | OSleep _ => resume_with s slot 0 w | _ => w end in
  let '(d, w1) := perform i s slot began o vs w0 in
  match d with
  | Value v => (Goes, resume_with s slot v w1)
  | Stops out => (StopsWith out, w1)
  | Exits v => (ExitsWith v, on_session s (note_exit slot v) w1)
  | Unpaid => (NoCycles, w1)
  end.

(** The answer to the wait that is over, in the coroutine's own time. *)
Definition finish_wait (s slot : Z) (w : world) : world :=
  match live_at (at_session w s) slot with
  | None => w
  | Some x =>
      let w1 := on_session s (on_live slot (set_wait WNone)) w in
      match waits x with
      | WCode c => resume_with s slot c w1
      | WNumber n =>
          let to := match pending_op x with
                    | OJoin _ to | ORecv _ to | OTryRecv _ to => to
                    | _ => 0
                    end in
          resume_with s slot 0
            (on_session s (fun t => set_memory (set_cell (s_memory t) to n) t) w1)
      | _ => w
      end
  end.

Definition left_now (i s slot began : Z) (w : world) : Z :=
  left_of (l_kernel (at_lane w i)) (used_by w s slot - began).

(** The main function returns its sum's lower 16 bits, others the sum. *)
Definition result_of (s : session) (slot v : Z) : Z :=
  if same_reference (reference_at s slot) (0, 0) then v mod 65536 else v.

Definition run_once (i s slot began : Z) (w : world) : flow * world :=
  match live_at (at_session w s) slot with
  | None => (FaultsNow, w)
  | Some x =>
      let g := body x in
      let '(why, g1, m1) := run_guest (steps_of g) g (s_memory (at_session w s))
                              (left_now i s slot began w) in
      let w1 := on_session s (fun t => set_memory m1 (on_live slot (set_body g1) t)) w in
      match why with
      | OutOfCycles_ => (NoCycles, w1)
      | InHost o => host_operation i s slot began o w1
      | Returned v =>
          let v1 := result_of (at_session w1 s) slot v in
          (ExitsWith v1, on_session s (note_exit slot v1) w1)
      | Faulted_ =>
          let first := same_reference (reference_at (at_session w1 s) slot) (0, 0) in
          (FaultsNow,
           log i [11; s; slot; 1]
             (on_session s (fun t => set_end (s_exit t) (s_ended t) (s_first_faulted t || first)
                (s_unjoined t) t) w1))
      end
  end.

Fixpoint run_slice (fuel : nat) (i s slot began : Z) (w : world) : flow * world :=
  match fuel with
  | O => (NoCycles, w)
  | S k =>
      match run_once i s slot began w with
      | (Goes, w1) => run_slice k i s slot began w1
      | r => r
      end
  end.

Definition wait_code (r : block_reason) : Z :=
  match r with
  | ChannelSend => 2 | ChannelReceive => 3 | Select => 4 | Join => 5 | Input => 6 | OtherLane => 7
  | Reply => 16 | Park => 18 | OtherSession => 19
  end.

(** The bound that a slice out of cycles reached [25]. *)
Definition reached (why : limit) (bound used : Z) (l : lane) : Z :=
  match why with
  | FrameEnd => 13
  | WaveEnd => 15
  | Quantum =>
      if used <? bound then if frame_end l <=? now l + used then 13 else 15 else 14
  end.

(** Why a step ended, in its event: 128 and this. *)
Definition stop_code (o : outcome) (cycles : Z) : Z :=
  match o with
  | Yielded => 0 | Slept _ => 1 | Blocks r => wait_code r | Finished => 8 | Faulted => 9
  | OutOfCycles => cycles
  end.

Definition outcome_of (f : flow) : outcome :=
  match f with
  | Goes | NoCycles => OutOfCycles
  | StopsWith o => o
  | ExitsWith _ => Finished
  | FaultsNow => Faulted
  end.

(** Once the step is in the log: the end of a coroutine. *)
Definition after_step (i s slot : Z) (r : option reference) (f : flow) (w : world) : world :=
  let w1 := on_lane i (fun l => set_mark (now (l_kernel l)) l) w in
  let w2 := match r with
            | Some r => on_lane i (on_kernel (fun l => snd (reap l r))) w1
            | None => w1
            end in
  match f with
  | ExitsWith v => end_task i s slot finished v w2
  | FaultsNow => end_task i s slot faulted 0 w2
  | _ => w1
  end.

Definition close_slice (i s slot began overhead_ bound : Z) (why : limit) (f : flow) (w : world)
    : world :=
  let used := used_by w s slot - began in
  let r := match live_at (at_session w s) slot with Some x => kernel x | None => None end in
  let l := l_kernel (at_lane w i) in
  let out := outcome_of f in
  let code := stop_code out (reached why bound used l) in
  let w1 := on_lane i (on_kernel (fun l => snd (stop l used out))) w in
  after_step i s slot r f (log i [128 + code; s; slot; overhead_; used] w1).

(** One step of lane [i]; [false] if the wave has none left. *)
Definition run_step (i : Z) (w : world) : bool * world :=
  if l_open (at_lane w i) then
    match dispatch (l_kernel (at_lane w i)) with
    | (Done (Run r bound why _ _), l) =>
        let w1 := on_lane i (set_kernel l) w in
        let t := match record_of l (fst r) with Some c => tag c | None => 0 end in
        let '(s, slot) := (Z.shiftr t 32, t mod two32) in
        let overhead_ := now l - l_mark (at_lane w1 i) in
        let began := used_by w1 s slot in
        let '(f, w2) := run_slice 1000%nat i s slot began (finish_wait s slot w1) in
        (true, close_slice i s slot began overhead_ bound why f w2)
    | (_, l) => (false, on_lane i (fun x => set_open false (set_kernel l x)) w)
    end
  else (false, w).

(** Which lane's turn it is in the canonical order is not known to a runner. *)
Definition without_turn (o : outside) : outside :=
  Outside (o_config o) (o_groups o) (o_homes o) (o_versions o) (o_limits o) (o_boundary o)
    (o_frame o) (o_next o) (o_wave o) (o_inputs o) (o_sampled o) (InWave 0) (o_frames o).

(** What the runner of lane [me] has: the lane, the sessions it was handed, and what is constant in
    a wave; of the other lanes and sessions it has nothing. *)
Definition act_on (o : outside) (lanes me : nat) (l : lane_state) (v : list (option session))
    : bool * (lane_state * list (option session)) :=
  let handed e := match e with Some s => s | None => no_session end in
  let i := Z.of_nat me in
  let w := World (Lanes.set_nth me l (repeat no_lane lanes)) (map handed v) (without_turn o) in
  let '(b, w) := run_step i w in
  (b, (at_lane w i, map Some (w_sessions w))).

Definition put (ls : list lane_state) (ss : list session) (w : world) : world :=
  World ls ss (w_out w).

Definition step_seeing : (nat -> bool) -> nat -> world -> bool * world :=
  Groups.step_seeing world lane_state session outside w_lanes w_sessions w_out put act_on.

(** A lane sees the sessions of its group. *)
Definition sees (o : outside) (me s : nat) : bool := Nat.eqb (owner_at o s) (group_at o me).

Definition step (me : nat) (w : world) : bool * world := step_seeing (sees (w_out w) me) me w.

(** ** The end of a wave [15, 23, 27] *)

Definition accept_effect (i : Z) (w : world) : world := on_lane i (on_kernel (book OInbox)) w.

Definition is_live (w : world) (n : name) : bool :=
  let '(s, slot, g) := n in
  match named_by (at_session w s) (slot, g) with IsLive => true | _ => false end.

Definition apply (from to : Z) (e : effect) (w : world) : world :=
  let w1 := accept_effect to w in
  match e with
  | Message c m =>
      if c_closed (channel_at w1 c) then w1
      else deliver to c m (log to [35; from; fst c; snd c] w1)
  | WaitToSend c n m =>
      if is_live w1 n then
        let w2 := on_channel c next_ticket w1 in
        let t := c_ticket (channel_at w2 c) in
        let w3 := on_channel c (fun x =>
                    set_senders (c_senders x ++ [(t, WaitingSender n false m)]) x) w2 in
        let '(s, slot, _) := n in
        on_session s (on_live slot (set_wait (WQueued t))) (touch c w3)
      else w1
  | Withdraw c t => on_channel c (fun x => set_senders (without t (c_senders x)) x) w1
  | ClosePort c => sender_left to c w1
  | Publish (s, slot, g) =>
      if is_live w1 (s, slot, g) then
        let '(r, w2) := publish to s slot w1 in
        on_session s (on_live slot (set_reference (Some r))) w2
      else w1
  | WakeUp (s, slot, g) src =>
      if is_live w1 (s, slot, g) then
        match live_at (at_session w1 s) slot with
        | Some x => match kernel x with Some r => wake_here to s slot r src w1 | None => w1 end
        | None => w1
        end
      else w1
  | CancelIt (s, slot, g) (t, by_, h) =>
      let w2 := if is_live w1 (s, slot, g) then cancel_task to s slot w1 else w1 in
      if is_live w2 (t, by_, h)
      then answer (k_lane (task_at (at_session w2 t) by_)) t by_ (WCode 0) FromAnswer w2
      else w2
  end.

Definition drain (i : Z) (w : world) : world :=
  let mine := rev (l_outbox (at_lane w i)) in
  fold_left (fun w e => apply i (fst e) (snd e) w) mine (on_lane i (set_outbox []) w).

Definition all_lanes (w : world) : list Z := numbers_below (length (w_lanes w)).

Fixpoint exchange (fuel : nat) (w : world) : world :=
  match fuel with
  | O => w
  | S k =>
      if forallb (fun l => match l_outbox l with [] => true | _ => false end) (w_lanes w) then w
      else exchange k (fold_left (fun w i => drain i w) (all_lanes w) w)
  end.

Definition home_of (w : world) (s : Z) : Z := hd 0 (lanes_of w s).

Definition answer_across (n : name) (a : wait_state) (w : world) : world :=
  let '(s, slot, _) := n in
  answer (k_lane (task_at (at_session w s) slot)) s slot a FromChannel w.

Fixpoint admit_across (fuel : nat) (c : place_of_channel) (w : world) : world :=
  match fuel, c_senders (channel_at w c) with
  | S k, (_, q) :: rest =>
      if c_closed (channel_at w c) then
        admit_across k c (answer_across (q_name q) (WCode e_closed)
                            (on_channel c (set_senders rest) w))
      else if room (channel_at w c) =? 0 then w
      else
        let home := home_of w (fst c) in
        let '(s, slot, _) := q_name q in
        let w1 := log home [36; s; slot; fst c; snd c] (on_channel c (set_senders rest) w) in
        admit_across k c (answer_across (q_name q) (WCode 0) (deliver home c (q_message q) w1))
  | _, _ => w
  end.

(** The free space of a channel is divided among the lanes that send to it. *)
Definition divide (c : place_of_channel) (w : world) : world :=
  let x := channel_at w c in
  match c_wiring x with
  | None => w
  | Some y =>
      let n := room x in
      let w1 := on_channel c (set_wiring (Some (Wiring (x_lanes y) (x_home y) n (x_open y)
          (x_touched y)))) w in
      fold_left (fun w i =>
        if i =? x_home y then w
        else on_lane i (on_credit c (fun d =>
               Credit c (d_lanes d) n (d_used d) (d_wave d) (c_closed x))) w)
        (x_lanes y) w1
  end.

Definition is_touched (c : channel) : bool :=
  match c_wiring c with Some x => x_touched x | None => false end.

(** In the order of session and index. *)
Definition touched (w : world) : list place_of_channel :=
  flat_map (fun s => map (pair s) (filter (fun k => is_touched (channel_at w (s, k)))
                                     (numbers_below (length (s_channels (at_session w s))))))
    (numbers_below (length (w_sessions w))).

Definition untouch (w : world) (c : place_of_channel) : world :=
  on_channel c (fun x => set_wiring (option_map (set_touched false) (c_wiring x)) x) w.

Definition settle_touched (w : world) : world :=
  fold_left (fun w c => divide c (admit_across (S (length (c_senders (channel_at w c)))) c w))
    (touched w) (fold_left untouch (touched w) w).

Fixpoint settle (fuel : nat) (w : world) : world :=
  match fuel with
  | O => w
  | S k =>
      let w1 := exchange 100 w in
      match touched w1 with [] => w1 | _ => settle k (settle_touched w1) end
  end.

(** ** Steal [14] *)

Definition is_alone (w : world) (i : Z) : bool :=
  let g := group_at (w_out w) (Z.to_nat i) in
  count (filter (fun l => Nat.eqb (group_at (w_out w) l) g) (seq 0 (length (w_lanes w)))) =? 1.

Definition is_banned (w : world) (s : Z) : bool :=
  (1 <? count (lanes_of w s)) || s_pinned (at_session w s).

(** The session that a lane offers: as [Lanes.offer], with any ban. *)
Definition offer (w : world) (l : lane) (round : Z) : option Z :=
  if count (ready (at_ l)) + count (current_slot (at_ l)) <? 2 then None
  else
    let sessions := Lanes.distinct (sort_by (fun x => x)
                      (map (fun e => session_of (tag (snd e))) (records (at_ l)))) in
    let first := Z.to_nat (round mod count sessions) in
    let own := match current (at_ l) with
               | Some (s, _) => match record_of l s with
                                | Some c => session_of (tag c)
                                | None => -1
                                end
               | None => -1
               end in
    let has_ready s := existsb (fun k => memb k (ready (at_ l))) (firstn 8 (session_slots l s)) in
    let list := filter (fun s => negb (s =? own) && has_ready s)
                  (firstn 8 (Lanes.rotate first sessions)) in
    let stays := match current (at_ l), list with
                 | Some _, _ => true
                 | None, _ :: _ :: _ => true
                 | None, _ => false
                 end in
    if stays then List.find (fun s => negb (is_banned w s)) list else None.

Definition victims (w : world) (thief : Z) : list Z :=
  let n := length (w_lanes w) in
  let first := Z.to_nat ((thief + w_wave w) mod Z.of_nat n) in
  firstn 4 (filter (fun v => negb (v =? thief)) (Lanes.rotate first (numbers_below n))).

Fixpoint first_offer (w : world) (vs : list Z) : option (Z * Z) :=
  match vs with
  | [] => None
  | v :: r =>
      match offer w (l_kernel (at_lane w v)) (w_wave w) with
      | Some s => Some (v, s)
      | None => first_offer w r
      end
  end.

(** One coroutine to another lane. *)
Definition carry_one (from to : Z) (stolen : bool) (w : world) (k : Z) : world :=
  match depart (l_kernel (at_lane w from)) k with
  | (Some t, l) =>
      let r := (l_fresh (at_lane w to), 0) in
      let w1 := on_lane to take_fresh (on_lane from (set_kernel l) w) in
      let w2 := on_lane to (on_kernel (fun x => snd (receive x r t stolen))) w1 in
      let name_ := tag (t_record t) in
      on_session (Z.shiftr name_ 32) (fun s =>
        on_live (name_ mod two32) (set_reference (Some r))
          (on_task (name_ mod two32) (fun y =>
             Task (k_generation y) (k_detached y) to (k_state y)) s)) w2
  | (None, _) => w
  end.

Definition sorted_lanes (l : list Z) : list Z := Lanes.distinct (sort_by (fun x => x) l).

(** The lanes of the sessions with a port to a channel. *)
Definition senders_lanes (w : world) (c : place_of_channel) : list Z :=
  sorted_lanes (flat_map (fun e =>
    if existsb (fun p => same_channel (p_channel p) c) (s_ports (snd e)) then fst e else [])
    (combine (w_homes w) (w_sessions w))).

Definition set_credit (c : place_of_channel) (d : credit) (l : lane_state) : lane_state :=
  match find_credit c (l_credits l) with
  | Some old => on_credit c (fun _ => Credit c (d_lanes d) (d_free d) (d_used old) (d_wave old)
                                        (d_closed d)) l
  | None => set_credits (l_credits l ++ [d]) l
  end.

(** The wiring of a channel, after its owner or a sender moved. *)
Definition rewire (w : world) (c : place_of_channel) : world :=
  let x := channel_at w c in
  match c_wiring x with
  | None => w
  | Some y =>
      let home := home_of w (fst c) in
      let lanes := senders_lanes w c in
      let d := Credit c lanes (x_free y) 0 0 (c_closed x) in
      let w1 := fold_left (fun w i => on_lane i (set_credit c d) w) lanes w in
      let w2 := with_sessions (map (fun s => set_ports (map (fun p =>
                  if same_channel (p_channel p) c then Port c home (p_closed p) else p)
                  (s_ports s)) s) (w_sessions w1)) w1 in
      let w3 := on_channel c (set_wiring (Some (Wiring lanes home (x_free y) (x_open y) (x_touched
          y)))) w2 in
      let is_local q := let '(s, slot, _) := q_name q in
                        k_lane (task_at (at_session w3 s) slot) =? home in
      on_channel c (fun z => set_senders (map (fun e =>
        (fst e, WaitingSender (q_name (snd e)) (is_local (snd e)) (q_message (snd e))))
        (c_senders z)) z) w3
  end.

(** The sessions of its old and its new group change. *)
Definition rehome (s to : Z) (w : world) : world :=
  let o := w_out w in
  let homes := Lanes.set_nth (Z.to_nat s) (map (fun _ => to) (lanes_of w s)) (o_homes o) in
  let is_changed l := Nat.eqb l (group_at o (Z.to_nat to)) || Nat.eqb l (owner_at o (Z.to_nat s)) in
  let version l := nth l (o_versions o) 0%N in
  with_homes homes (map (fun l => if is_changed l then N.succ (version l) else version l)
                      (seq 0 (length (w_lanes w)))) w.

Definition move_session (s from to : Z) (stolen : bool) (w : world) : world :=
  let l := l_kernel (at_lane w from) in
  let arrival_of k := match record_of l k with Some c => arrival c | None => 0 end in
  let movers := sort_by arrival_of (session_slots l s) in
  let w1 := on_lane to (on_kernel (fun l => if stolen then book OSteal l else l)) w in
  let '(g, k) := depart_session (l_kernel (at_lane w1 from)) s in
  let w2 := on_lane to (on_kernel (receive_session s g)) (on_lane from (set_kernel k) w1) in
  let w3 := rehome s to (fold_left (carry_one from to stolen) movers w2) in
  let x := at_session w3 s in
  let channels := map (fun k => (s, k)) (numbers_below (length (s_channels x)))
                  ++ map p_channel (s_ports x) in
  emit [37; s; from; to; if stolen then 0 else 1] (fold_left rewire channels w3).

Definition steal_for (w : world) (thief : Z) : world :=
  if has_work (l_kernel (at_lane w thief)) || negb (is_alone w thief) then w
  else
    match first_offer w (victims w thief) with
    | Some (v, s) => move_session s v thief true w
    | None => w
    end.

Definition latest (w : world) : Z :=
  fold_left (fun t l => Z.max t (now (l_kernel l))) (w_lanes w) 0.

Definition close_wave (w : world) : world :=
  let t := latest w in
  let w1 := with_lanes (map (on_kernel (fun l => align l t)) (w_lanes w)) w in
  let w2 := settle 100 (with_wave (w_wave w1 + 1) w1) in
  with_phase InFrame
    (if f_steal (w_config w2) then fold_left steal_for (all_lanes w2) w2 else w2).

(** ** Balance, at a frame's end [14] *)

Definition load_of (w : world) (i : Z) : Z :=
  let p := at_ (l_kernel (at_lane w i)) in count (ready p) + count (current_slot p).

(** Of the lanes that are alone, the first with the most that could run and the first with the
    fewest, with their difference. *)
Definition unequal_lanes (w : world) : option (Z * Z * Z) :=
  match filter (is_alone w) (all_lanes w) with
  | [] => None
  | x :: r =>
      let from := fold_left (fun m i => if load_of w m <? load_of w i then i else m) r x in
      let to := fold_left (fun m i => if load_of w i <? load_of w m then i else m) r x in
      let ahead := load_of w from - load_of w to in
      if 0 <? ahead then Some (from, to, ahead) else None
  end.

(** Moves while lanes get closer, at most [fuel] times; with whether a session moved. *)
Fixpoint balance_moves (fuel : nat) (moved : bool) (w : world) : bool * world :=
  match fuel, unequal_lanes w with
  | S k, Some (from, to, ahead) =>
      let l := l_kernel (at_lane w from) in
      match offer w l (w_frame w) with
      | Some s =>
          if ahead <=? count (session_slots l s) then (moved, w)
          else balance_moves k true (move_session s from to false w)
      | None => (moved, w)
      end
  | _, _ => (moved, w)
  end.

(** The sessions of a lane that a steal would inspect and that could run: session, coroutines, and
    migrations of its first coroutine. *)
Definition runnable_sessions (l : lane) (round : Z) : list (Z * Z * Z) :=
  let sessions := Lanes.distinct (sort_by (fun x => x)
                    (map (fun e => session_of (tag (snd e))) (records (at_ l)))) in
  match sessions with
  | [] => []
  | _ =>
      let first := Z.to_nat (round mod count sessions) in
      let runs s := existsb (fun k => memb k (ready (at_ l))) (firstn 8 (session_slots l s))
                    || existsb (fun k => memb k (current_slot (at_ l))) (session_slots l s) in
      map (fun s =>
          let slots := session_slots l s in
          let moved := match record_of l (hd 0 slots) with
                       | Some c => migrations (account c)
                       | None => 0
                       end in
          (s, count slots, moved))
        (filter runs (firstn 8 (Lanes.rotate first sessions)))
  end.

Definition turn_coroutines : Z := 8.
Definition turn_cycles : Z := 65536.

(** Sessions that cannot be divided evenly take turns on the emptier lane. *)
Definition take_turns (w : world) : world :=
  match unequal_lanes w with
  | None => w
  | Some (from, to, ahead) =>
      let found i := runnable_sessions (l_kernel (at_lane w i)) (w_frame w) in
      let weight (e : Z * Z * Z) := s_weight (at_session w (fst (fst e))) in
      match found to with
      | [] => w
      | first :: _ =>
          if (turn_coroutines <? ahead)
             || existsb (fun e => negb (weight e =? weight first)) (found from ++ found to) then w
          else
            let free := filter (fun e => (snd (fst e) =? ahead)
                                         && negb (is_banned w (fst (fst e)))) (found from) in
            match sort_by snd (sort_by (fun e => fst (fst e)) free) with
            | (s, _, _) :: _ => move_session s from to false w
            | [] => w
            end
      end
  end.

Definition is_time_for_a_turn (w : world) : bool :=
  let until f := f * f_frame_cycles (w_config w) / turn_cycles in
  until (w_frame w) <? until (w_frame w + 1).

Definition balance (w : world) : world :=
  let '(moved, w1) := balance_moves (Nat.div2 (length (w_lanes w))) false w in
  if negb moved && is_time_for_a_turn w1 then take_turns w1 else w1.

(** ** Waves and frames *)

Definition any_work (w : world) : bool := existsb (fun l => has_work (l_kernel l)) (w_lanes w).

Definition begin_wave_on (sp : span) (l : lane_state) : lane_state :=
  if has_work (l_kernel l) then
    let t := now (l_kernel l) in
    on_kernel (fun k => begin_wave k sp) (log_event [1; t] (set_mark t (set_open true l)))
  else l.

Definition begin_wave_all (w : world) : world :=
  let sp := if f_span_picks (w_config w) then Picks (f_span (w_config w))
            else Until (latest w + f_span (w_config w)) in
  with_phase (InWave 0) (with_lanes (map (begin_wave_on sp) (w_lanes w)) w).

Definition sample (n : Z) (w : world) (s : Z) : world :=
  let w1 := emit [33; s; n] w in
  match s_ended (at_session w1 s) with
  | Some _ => w1
  | None => with_inputs (w_inputs w1) (w_sampled w1 ++ [s])
              (on_session s (fun t => set_input (s_input t ++ [n]) t) w1)
  end.

Fixpoint sample_due (fuel : nat) (f : Z) (w : world) : world :=
  match fuel, w_inputs w with
  | S k, (at_, n) :: rest =>
      if at_ <=? f then
        sample_due k f (fold_left (sample n) (numbers_below (length (w_sessions w)))
                          (with_inputs rest (w_sampled w) w))
      else w
  | _, _ => w
  end.

Definition begin_frame_on (f : Z) (l : lane_state) : lane_state :=
  let '(n, k) := begin_frame (l_kernel l) f in
  let l1 := set_kernel k l in
  if 0 <? n then log_event [16; n] l1 else l1.

Definition begin_frame_all (w : world) : world :=
  let '(from, f) := (w_frame w, w_next w) in
  let w1 := if from + 1 <? f then emit [34; from; f] w else w in
  let w2 := with_phase InFrame (with_frame f f (emit [32; f] w1)) in
  let w3 := sample_due (length (w_inputs w2)) f w2 in
  if 0 <? f then with_lanes (map (begin_frame_on f) (w_lanes w3)) w3 else w3.

Definition drop_input (w : world) (s : Z) : world :=
  let n := count (s_input (at_session w s)) in
  let w1 := on_session s (set_input []) w in
  if 0 <? n then emit [41; s; n] w1 else w1.

Definition frame_sync (is_last : bool) (w : world) : world :=
  let w1 := fold_left drop_input (sorted_lanes (w_sampled w)) w in
  let w2 := emit [39; w_frame w1] (with_inputs (w_inputs w1) [] w1) in
  let ends := map (fun l => let k := l_kernel l in
                   if is_last then (row_of k, k) else end_frame k) (w_lanes w2) in
  let logs := map (fun l => rev (l_log l)) (w_lanes w2) in
  let w3 := with_frames ((rev (w_boundary w2), logs, map fst ends) :: w_frames w2) w2 in
  with_boundary [] (with_lanes (map (fun p => set_log [] (set_kernel (snd (snd p)) (fst p)))
                                  (combine (w_lanes w3) ends)) w3).

(** Outcomes: 0 finished, 1 frames, 2 deadlock, 3 faulted [11]. *)
Definition end_run (outcome waiting : Z) (w : world) : world :=
  let bad := existsb (fun s => match s_ended s with
                               | Some v => v =? 1
                               | None => verdict s =? 1
                               end) (w_sessions w) in
  let w1 := if outcome =? 2 then emit [38; waiting] w else w in
  with_phase (Done_ (if bad then 3 else outcome)) (frame_sync (negb (outcome =? 1)) w1).

Definition min_of (l : list Z) : option Z :=
  match l with [] => None | x :: r => Some (fold_left Z.min r x) end.

Definition optional {A} (o : option A) : list A := match o with Some a => [a] | None => [] end.

Definition next_event_frame (following : Z) (w : world) : Z :=
  let events := flat_map (fun l => optional (next_wake (l_kernel l))) (w_lanes w)
                ++ map fst (firstn 1 (w_inputs w)) in
  match min_of events with Some f => Z.max f following | None => following end.

Definition end_frame_all (w : world) : world :=
  let following := w_frame w + 1 in
  let next := if any_work w then following else next_event_frame following w in
  let last := f_last (w_config w) in
  if last <=? w_frame w then end_run 1 0 w
  else
    let w1 := frame_sync false (if f_balance (w_config w) then balance w else w) in
    with_phase AtBoundary (with_frame (w_frame w1) (Z.min next last) w1).

(** Deadlock [29]: everything that lives waits, and no input is left. *)
Definition waiting_count (w : world) : Z :=
  fold_left (fun n s => n + count (filter (fun t => match k_state t with
      | Alive x => match waits x with
                   | WQueued _ | WTaking _ | WSelecting _ | WJoining _ | WLane => true
                   | _ => false
                   end
      | _ => false
      end) (s_tasks s))) (w_sessions w) 0.

Definition is_stalled (w : world) : bool :=
  forallb (fun l => let p := at_ (l_kernel l) in
             count (ready p) + count (current_slot p) + count (sleeping p) + count (held p) =? 0)
    (w_lanes w)
  && match w_inputs w with [] => true | _ => false end.

Definition is_over (w : world) : bool :=
  forallb (fun s => match s_ended s with Some _ => true | None => false end) (w_sessions w).

(** One transition; [true] if it was a step of a lane. *)
Definition tick (w : world) : bool * world :=
  match w_phase w with
  | Done_ _ => (false, w)
  | AtBoundary => (false, begin_frame_all w)
  | InWave turn =>
      if Nat.ltb turn (length (w_lanes w)) then
        match step turn w with
        | (true, w1) => (true, w1)
        | (false, w1) => (false, with_phase (InWave (S turn)) w1)
        end
      else (false, close_wave w)
  | InFrame =>
      (false,
       if is_over w then end_run 0 0 w
       else if (latest w <? frame_end_of w) && any_work w then begin_wave_all w
       else if is_stalled w && (0 <? waiting_count w) then end_run 2 (waiting_count w) w
       else end_frame_all w)
  end.

(** A canonical round: transitions until a step was made or the run is over; [None] if [fuel]
    transitions do not suffice. *)
Fixpoint round (fuel : nat) (w : world) : option (bool * world) :=
  match fuel with
  | O => None
  | S k =>
      match w_phase w with
      | Done_ _ => Some (false, w)
      | _ => match tick w with
             | (true, w1) => Some (true, w1)
             | (false, w1) => round k w1
             end
      end
  end.

Fixpoint run (fuel : nat) (w : world) : world :=
  match fuel with O => w | S k => run k (snd (tick w)) end.

(** ** Loading *)

(** A session of the manifest: lanes with the home lane first, priority, weight, class, whether it
    is pinned, its main function and the entries of its table, its ports' channels and its limits.
        *)
Record plan := Plan {
  n_lanes : list Z; n_priority : Z; n_weight : Z; n_class : Z; n_pinned : bool;
  n_main : program; n_entries : list program; n_ports : list Z;
  n_coroutines : Z; n_channels : Z }.      (** at most so many of each *)

(** A wired channel: owner and capacity. *)
Record wire := Wire { v_owner : Z; v_capacity : Z }.

Fixpoint channel_ids (cs : list wire) (seen : list Z) : list place_of_channel :=
  match cs with
  | [] => []
  | c :: r => (v_owner c, count (filter (fun o => o =? v_owner c) seen))
              :: channel_ids r (v_owner c :: seen)
  end.

Definition cells : nat := 24.

(** Ports in the order of the manifest, one per channel, none to a channel of its own. *)
Fixpoint ports_of (me : Z) (ids : list place_of_channel) (ns : list Z) (seen : list Z)
    : list place_of_channel :=
  match ns with
  | [] => []
  | n :: r =>
      let c := nth (Z.to_nat n) ids (0, 0) in
      if (fst c =? me) || memb n seen then ports_of me ids r seen
      else c :: ports_of me ids r (n :: seen)
  end.

Definition load_session (homes : list Z) (ids : list place_of_channel) (cs : list wire)
    (all : list (list place_of_channel)) (lanes_of : list (list Z)) (me : Z) (p : plan)
    : session :=
  let mine := filter (fun e => fst (fst e) =? me) (combine ids cs) in
  let senders c := filter (fun e => existsb (same_channel c) (snd e))
                     (combine lanes_of all) in
  let channels := map (fun e =>
    let c := fst e in
    let from := senders c in
    Channel (v_capacity (snd e)) [] [] [] [] 0 false
      match from with
      | [] => None
      | _ => Some (Wiring (sorted_lanes (flat_map fst from)) (hd 0 (n_lanes p))
                     (v_capacity (snd e)) (count from) false)
      end) mine in
  let ports := map (fun c => Port c (nth (Z.to_nat (fst c)) homes 0) false)
                 (nth (Z.to_nat me) all []) in
  Session (n_priority p) (n_weight p) (n_class p) (n_pinned p) (n_entries p)
    [] [] 0 0 channels ports
    (map Own_ (numbers_below (length channels)) ++ map Port_ (numbers_below (length ports)))
    (repeat 0 cells) [] 0 0 None false 0.

Definition publish_first (ps : list plan) (w : world) (s : Z) : world :=
  let p := nth (Z.to_nat s) ps (Plan [] 0 1 2 false [] [] [] 0 0) in
  let i := hd 0 (n_lanes p) in
  let '(r, w1) := publish i s 0 w in
  on_session s (insert_task i (Live (Some r) WNone [] (start_guest (n_main p) 0))) w1.

Definition load_credits (w : world) : world :=
  fold_left (fun w s =>
    fold_left (fun w k =>
      match c_wiring (channel_at w (s, k)) with
      | None => w
      | Some x => fold_left (fun w i => on_lane i (set_credit (s, k)
                    (Credit (s, k) (x_lanes x) (x_free x) 0 0 false)) w) (x_lanes x) w
      end) (numbers_below (length (s_channels (at_session w s)))) w)
    (numbers_below (length (w_sessions w))) w.

Definition load (c : config) (ps : list plan) (cs : list wire) (inputs : list (Z * Z)) : world :=
  let ids := channel_ids cs [] in
  let lanes := map n_lanes ps in
  let names := numbers_below (length ps) in
  let all := map (fun e => ports_of (fst e) ids (n_ports (snd e)) []) (combine names ps) in
  let ss := map (fun e => load_session (map (hd 0) lanes) ids cs all lanes (fst e) (snd e))
              (combine names ps) in
  let k := new_lane (Settings (f_policy c) (f_frame_cycles c) (f_handoff c) costs_v1) in
  let n := Z.to_nat (f_lanes c) in
  let limits := map (fun e => (n_coroutines (fst e),
                       n_channels (fst e) + count (s_channels (snd e)))) (combine ps ss) in
  let groups := map (group_of n (map (map Z.to_nat) lanes)) (seq 0 n) in
  let w := World (repeat (LaneState k [] [] [] 0 0 false) n) ss
             (Outside c groups lanes (repeat 1%N n) limits [] 0 0 0 inputs [] AtBoundary []) in
  load_credits (fold_left (publish_first ps) names w).
