(** Fair sharing on a lane as an executable model (docs/fair.md): coroutines compete directly (the
    flat form), or sessions compete and the coroutines of each session compete for its part.

    Both levels are queues of [Fair]; this file has what connects them. It follows the naive model
    of the kernel's tests. Elsewhere: one queue ([Fair]), which operation of a lane is which event
    here ([Lane]), how far service is from the shares ([ShareBound]). *)

From Coq Require Import ZArith List Bool.
From Wavelock Require Import Fair.
Import ListNotations.
Open Scope Z_scope.

Record shares := Shares {
  h_new : fair;                  (** an empty queue with this lane's slices *)
  h_upper : option fair;         (** of the sessions, by number; none in the flat form *)
  h_lower : list (Z * fair);     (** of coroutines, by session; by 0 in the flat form *)
  h_home : list (Z * Z);         (** the session of each slot *)
  h_mark : Z }.                  (** the clock up to which time was charged *)

Definition new_shares (base least : Z) (of_sessions : bool) : shares :=
  let f := new_fair base least in
  if of_sessions then Shares f (Some f) [] [] 0 else Shares f None [(0, f)] [] 0.

Definition with_upper u h := Shares (h_new h) u (h_lower h) (h_home h) (h_mark h).
Definition with_lower l h := Shares (h_new h) (h_upper h) l (h_home h) (h_mark h).
Definition with_home l h := Shares (h_new h) (h_upper h) (h_lower h) l (h_mark h).
Definition sh_mark clock h := Shares (h_new h) (h_upper h) (h_lower h) (h_home h) clock.

Fixpoint sh_find {A} (k : Z) (l : list (Z * A)) : option A :=
  match l with [] => None | (j, a) :: r => if j =? k then Some a else sh_find k r end.

Definition sh_has {A} (k : Z) (l : list (Z * A)) : bool :=
  match sh_find k l with Some _ => true | None => false end.

Definition on_upper (f : fair -> fair) (h : shares) : shares :=
  with_upper match h_upper h with Some u => Some (f u) | None => None end h.

Definition group (k : Z) (h : shares) : fair :=
  match sh_find k (h_lower h) with Some f => f | None => h_new h end.

Definition on_group (k : Z) (g : fair -> fair) (h : shares) : shares :=
  with_lower (map (fun e => if fst e =? k then (fst e, g (snd e)) else e) (h_lower h)) h.

Definition home_of (slot : Z) (h : shares) : Z :=
  match h_upper h, sh_find slot (h_home h) with Some _, Some k => k | _, _ => 0 end.

(** The session that has the lane; the one group, in the flat form. *)
Definition holder (h : shares) : option Z :=
  match h_upper h with
  | None => Some 0
  | Some u => match on_lane u with Some (k, _) => Some k | None => None end
  end.

(** A session comes from another lane; one that is here keeps what it has. *)
Definition sh_receive (k : Z) (g : luggage) (h : shares) : shares :=
  match h_upper h with
  | None => h
  | Some u =>
      if sh_has k (h_lower h) then h
      else with_lower ((k, h_new h) :: h_lower h) (with_upper (Some (adopt k g u)) h)
  end.

(** A session goes to another lane; its coroutines follow one by one. *)
Definition sh_depart (k : Z) (h : shares) : option luggage * shares :=
  match h_upper h with
  | Some u =>
      if sh_has k (h_lower h)
      then let '(g, u1) := fair_leave k u in (Some g, with_upper (Some u1) h)
      else (None, h)
  | None => (None, h)
  end.

(** A coroutine's entity; [share] is its session's, if it is the first of it. *)
Definition sh_adopt (slot session : Z) (g share : luggage) (h : shares) : shares :=
  let h1 := sh_receive session share h in
  let h2 := with_home ((slot, session) :: filter (fun e => negb (fst e =? slot)) (h_home h1)) h1 in
  on_group (home_of slot h2) (adopt slot g) h2.

Definition sh_enter (slot : Z) (e : entry) (h : shares) : shares :=
  let k := home_of slot h in
  let h1 := on_group k (fair_enter slot e) h in
  let is_alone := match f_all (group k h1) with [_] => true | _ => false end in
  on_upper (fun u =>
    match fair_get u k with
    | None => u
    | Some c =>
        match f_at c with
        | FQueue | FLane => u
        | FDelayed => fair_enter k Woken_ u
        | FRest _ _ =>
            fair_enter k match e with New => if is_alone then New else Woken_ | _ => e end u
        end
    end) h1.

(** One of its coroutines left the competition: what becomes of the session. *)
Definition sh_follow (k : Z) (waits : bool) (h : shares) : shares :=
  match h_upper h with
  | None => h
  | Some u =>
      let g := group k h in
      let ready := existsb (fun e => is_queued (snd e) || is_on_lane (snd e)) (f_all g) in
      match f_all g with
      | [] => with_lower (filter (fun e => negb (fst e =? k)) (h_lower h))
                (with_upper (Some match fair_get u k with
                                  | Some _ => snd (fair_leave k u)
                                  | None => u
                                  end) h)
      | _ =>
          let '(queued, on_it) := match fair_get u k with
                                  | Some c => (is_queued c, is_on_lane c)
                                  | None => (false, false)
                                  end in
          if ready then
            match on_lane g with
            | None => if on_it && (fair_bound u =? 0) then on_upper fair_requeue h else h
            | Some _ => h
            end
          else if queued || on_it then
            on_upper (if waits then fair_rest k else fair_set_aside k) h
          else h
      end
  end.

(** Out for good: ended, or on its way to another lane. *)
Definition sh_leave (slot : Z) (has_ended : bool) (h : shares) : luggage * shares :=
  let k := home_of slot h in
  let '(g, f) := fair_leave slot (group k h) in
  (g, sh_follow k has_ended (on_group k (fun _ => f) h)).

Definition sh_set_aside (slot : Z) (h : shares) : shares :=
  let k := home_of slot h in sh_follow k false (on_group k (fair_set_aside slot) h).

Definition sh_rest (slot : Z) (h : shares) : shares :=
  let k := home_of slot h in sh_follow k true (on_group k (fair_rest slot) h).

(** A session, unless one has the lane; then one of its coroutines. *)
Definition sh_pick (h : shares) : option Z * shares :=
  let h1 := match holder h, h_upper h with
            | None, Some u => with_upper (Some (snd (fair_pick u))) h
            | _, _ => h
            end in
  match holder h1 with
  | None => (None, h1)
  | Some k =>
      let '(picked, f) := fair_pick (group k h1) in (picked, on_group k (fun _ => f) h1)
  end.

(** Handoff: the session must have the lane, or be queued and eligible. *)
Definition sh_hand_to (slot rest : Z) (h : shares) : option shares :=
  let k := home_of slot h in
  let inner := match hand_to slot rest (group k h) with
               | Some f => Some (on_group k (fun _ => f) h)
               | None => None
               end in
  match h_upper h with
  | None => inner
  | Some u =>
      match on_lane u with
      | Some (j, _) =>
          if j =? k then inner
          else match inner, hand_to k rest (fair_requeue u) with
               | Some h1, Some u1 => Some (with_upper (Some u1) h1)
               | _, _ => None
               end
      | None =>
          match inner, hand_to k rest u with
          | Some h1, Some u1 => Some (with_upper (Some u1) h1)
          | _, _ => None
          end
      end
  end.

Definition sh_bound (h : shares) : Z :=
  match holder h with
  | None => 0
  | Some k =>
      let own := fair_bound (group k h) in
      match h_upper h with Some u => Z.min (fair_bound u) own | None => own end
  end.

(** A slice of [used] cycles ended at this clock. Service is the time of the lane since the pick; in
    the flat form the cycles of the guest alone. *)
Definition sh_charge (used clock : Z) (h : shares) : shares :=
  let cycles := match h_upper h with Some _ => clock - h_mark h | None => used end in
  match holder h with
  | None => h
  | Some k => on_group k (fair_charge cycles) (on_upper (fair_charge cycles) (sh_mark clock h))
  end.

(** The slice ended. The session keeps the lane while it is protected and no other is preferred. *)
Definition sh_requeue (h : shares) : shares :=
  match holder h with
  | None => h
  | Some k =>
      on_upper
        (fun u => if (fair_bound u =? 0) || fair_prefers_another u then fair_requeue u else u)
        (on_group k fair_requeue h)
  end.

Definition sh_yield (h : shares) : shares :=
  match holder h with
  | None => h
  | Some k =>
      let h1 := on_group k give_way h in
      let queued := filter (fun e => is_queued (snd e)) (f_all (group k h1)) in
      on_upper (fun u =>
        match queued with
        | [_] => give_way u
        | _ => if fair_bound u =? 0 then fair_requeue u else u
        end) h1
  end.

Definition sh_prefers_another (h : shares) : bool :=
  match holder h with
  | None => false
  | Some k =>
      match h_upper h with Some u => fair_prefers_another u | None => false end
      || fair_prefers_another (group k h)
  end.

(** Another weight and class, within the session. *)
Definition sh_share (slot weight class : Z) (h : shares) : shares :=
  on_group (home_of slot h) (fair_share slot weight class) h.

(** Of a session; [None] if it has no share here. *)
Definition sh_session_share (k weight class : Z) (h : shares) : option shares :=
  match h_upper h with
  | Some u =>
      if sh_has k (h_lower h) then Some (on_upper (fair_share k weight class) h) else None
  | None => None
  end.
