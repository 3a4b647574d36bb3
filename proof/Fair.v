(** The fair policy (EEVDF, cpu-authority D.5 and D.6; docs/fair.md) as an executable model: a list
    of competitors; virtual time is computed anew from all of them whenever it is needed.

    The unit of virtual time is 1/1024 cycle at the neutral weight. The quotient of a charge moves
    virtual time, the remainder is kept. Executable only: the oracle runs it; its bounds are not
    proved here. It follows the naive model of the kernel's tests. Elsewhere: which operation of a
    lane is which event here ([Lane]). *)

From Coq Require Import ZArith List Bool.
Import ListNotations.
Open Scope Z_scope.

(** Units of virtual time that one cycle adds at weight 1. *)
Definition units : Z := 2 ^ 20.
Definition max_gap : Z := 4096.

(** Where a competitor is. *)
Inductive standing :=
| FRest (lag : Z) (left_ : option Z)   (** not competing: lag, and the rest of a request *)
| FQueue
| FDelayed                              (** asleep in debt *)
| FLane.

Record competitor := Competitor {
  f_at : standing; f_weight : Z; f_class : Z; f_remainder : Z; f_v : Z; f_deadline : Z;
  f_arrival : Z }.

(** What a competitor takes to another lane, or over a change of policy. *)
Record luggage := Luggage {
  g_weight : Z; g_class : Z; g_remainder : Z; g_lag : Z; g_left : option Z }.

Definition fresh_luggage (weight class : Z) : luggage := Luggage weight class 0 0 None.

Inductive entry := New | Woken_ | Moved.

Record fair := Fair_ {
  f_base : Z; f_least : Z; f_all : list (Z * competitor); f_protected : Z; f_arrivals : Z }.

Definition new_fair (base least : Z) : fair := Fair_ base least [] 0 0.

Definition fset_at a c :=
  Competitor a (f_weight c) (f_class c) (f_remainder c) (f_v c) (f_deadline c) (f_arrival c).
Definition fset_time v d c :=
  Competitor (f_at c) (f_weight c) (f_class c) (f_remainder c) v d (f_arrival c).
Definition with_all l f := Fair_ (f_base f) (f_least f) l (f_protected f) (f_arrivals f).
Definition with_protected p f := Fair_ (f_base f) (f_least f) (f_all f) p (f_arrivals f).

Fixpoint fair_find (s : Z) (l : list (Z * competitor)) : option competitor :=
  match l with [] => None | (k, c) :: r => if k =? s then Some c else fair_find s r end.

Definition fair_get (f : fair) (s : Z) : option competitor := fair_find s (f_all f).

Definition fair_set (s : Z) (g : competitor -> competitor) (f : fair) : fair :=
  with_all (map (fun e => if fst e =? s then (fst e, g (snd e)) else e) (f_all f)) f.

Definition competes (c : competitor) : bool :=
  match f_at c with FRest _ _ => false | _ => true end.
Definition is_queued (c : competitor) : bool := match f_at c with FQueue => true | _ => false end.
Definition is_delayed (c : competitor) : bool :=
  match f_at c with FDelayed => true | _ => false end.
Definition is_on_lane (c : competitor) : bool := match f_at c with FLane => true | _ => false end.

Definition competing (f : fair) : list competitor := filter competes (map snd (f_all f)).

Definition weight_of (l : list competitor) : Z := fold_left (fun n c => n + f_weight c) l 0.

(** The average virtual runtime, weighted, rounded down. *)
Definition fair_now_of (l : list competitor) : Z :=
  fold_left (fun n c => n + f_weight c * f_v c) l 0 / weight_of l.
Definition fair_now (f : fair) : Z := fair_now_of (competing f).

Definition class_request (class base : Z) : Z :=
  Z.max 1 (if class =? 0 then base / 8 else if class =? 1 then base / 4
           else if class =? 2 then base else if class =? 3 then base * 4 else base * 16).

Definition slice_of (f : fair) (class : Z) : Z :=
  Z.max (class_request class (f_base f)) (f_least f).

Definition request_of (f : fair) (c : competitor) : Z :=
  slice_of f (f_class c) * units / f_weight c.

Definition least_slice (f : fair) : Z :=
  match competing f with
  | [] => f_base f
  | c :: r => fold_left (fun m d => Z.min m (slice_of f (f_class d))) r (slice_of f (f_class c))
  end.
Definition most_slice (f : fair) : Z :=
  fold_left (fun m d => Z.max m (slice_of f (f_class d))) (competing f) 0.

(** To a standing, with the next arrival. *)
Definition fair_queue (s : Z) (a : standing) (f : fair) : fair :=
  let n := f_arrivals f in
  let g c := Competitor a (f_weight c) (f_class c) (f_remainder c) (f_v c) (f_deadline c) n in
  let f1 := fair_set s g f in
  Fair_ (f_base f1) (f_least f1) (f_all f1) (f_protected f1) (n + 1).

Definition adopt (s : Z) (g : luggage) (f : fair) : fair :=
  with_all ((s, Competitor (FRest (g_lag g) (g_left g)) (g_weight g) (g_class g) (g_remainder g)
                  0 0 0) :: f_all f) f.

Definition kept_lag (f : fair) (c : competitor) : Z :=
  let most := (most_slice f + max_gap) * units / f_weight c in
  Z.max (- most) (Z.min most (fair_now f - f_v c)).

(** Out of the competition without having chosen to: lag and the rest of the request are kept. *)
Definition fair_set_aside (s : Z) (f : fair) : fair :=
  match fair_get f s with
  | Some c =>
      let a := match f_at c with
               | FRest lag rest => FRest lag rest
               | FDelayed => FRest (Z.min 0 (kept_lag f c)) None
               | FQueue | FLane => FRest (kept_lag f c) (Some (f_deadline c - f_v c))
               end in
      fair_set s (fset_at a) f
  | None => f
  end.

(** Out for good, with what it carries. *)
Definition fair_leave (s : Z) (f : fair) : luggage * fair :=
  let f1 := fair_set_aside s f in
  let g := match fair_get f1 s with
           | Some c => match f_at c with
                       | FRest lag rest => Luggage (f_weight c) (f_class c) (f_remainder c) lag rest
                       | _ => fresh_luggage 1 2
                       end
           | None => fresh_luggage 1 2
           end in
  (g, with_all (filter (fun e => negb (fst e =? s)) (f_all f1)) f1).

Definition fair_enter (s : Z) (e : entry) (f : fair) : fair :=
  match fair_get f s with
  | None => f
  | Some c =>
      let still_owes := match f_at c with FDelayed => fair_now f <=? f_v c | _ => false end in
      if still_owes then fair_queue s FQueue f
      else
        let others := filter competes
          (map snd (filter (fun d => negb (fst d =? s)) (f_all f))) in
        let now := fair_now_of others in
        let sum := weight_of others in
        let '(lag, rest) := match f_at c with FRest lag rest => (lag, rest) | _ => (0, None) end in
        let lag := match e with New => 0 | _ => lag end in
        let rest := match e with Moved => rest | _ => None end in
        let v := if sum =? 0 then now else now - (lag * (sum + f_weight c)) / sum in
        let request := match e with
                       | New => request_of f c / 2
                       | _ => match rest with Some r => r | None => request_of f c end
                       end in
        fair_queue s FQueue (fair_set s (fset_time v (v + request)) f)
  end.

(** Out of the competition to wait: only one that owes nothing may leave at once. *)
Definition fair_rest (s : Z) (f : fair) : fair :=
  match fair_get f s with
  | Some c =>
      if fair_now f <? f_v c then fair_queue s FDelayed f
      else fair_set s (fset_at (FRest (kept_lag f c) None)) f
  | None => f
  end.

(** By deadline, then arrival. *)
Definition fair_before (a b : competitor) : bool :=
  (f_deadline a <? f_deadline b)
  || ((f_deadline a =? f_deadline b) && (f_arrival a <? f_arrival b)).

Fixpoint fair_first (wanted : competitor -> bool) (l : list (Z * competitor))
    : option (Z * competitor) :=
  match l with
  | [] => None
  | e :: r =>
      let best := fair_first wanted r in
      if wanted (snd e) then
        match best with
        | Some b => if fair_before (snd b) (snd e) then Some b else Some e
        | None => Some e
        end
      else best
  end.

Definition first_eligible (kind : competitor -> bool) (f : fair) : option (Z * competitor) :=
  let now := fair_now f in fair_first (fun c => kind c && (f_v c <=? now)) (f_all f).

(** Sleepers that come first have paid their debt and leave; at most eight per pick. *)
Fixpoint dismiss (n : nat) (f : fair) : fair :=
  match n with
  | O => f
  | S k =>
      match first_eligible is_delayed f with
      | None => f
      | Some (s, sleeper) =>
          let stops := match first_eligible is_queued f with
                       | Some (_, c) => fair_before c sleeper
                       | None => false
                       end in
          if stops then f else dismiss k (fair_set s (fset_at (FRest 0 None)) f)
      end
  end.

Definition protect (s : Z) (f : fair) : fair :=
  match fair_get f s with
  | Some c =>
      with_protected (Z.min (f_deadline c) (f_v c + least_slice f * units / f_weight c)) f
  | None => f
  end.

Definition least_v (f : fair) : option Z :=
  fold_left (fun m e => if is_queued (snd e) then
                          match m with
                          | Some x => Some (Z.min x (f_v (snd e)))
                          | None => Some (f_v (snd e))
                          end
                        else m) (f_all f) None.

(** The earliest deadline among the eligible. *)
Definition fair_pick (f : fair) : option Z * fair :=
  let f1 := dismiss 8 f in
  let picked :=
    match first_eligible is_queued f1 with
    | Some e => Some e
    | None => match least_v f1 with
              | Some least => fair_first (fun c => is_queued c && (f_v c =? least)) (f_all f1)
              | None => None
              end
    end in
  match picked with
  | Some (s, _) => (Some s, protect s (fair_set s (fset_at FLane) f1))
  | None => (None, f1)
  end.

(** Handoff: the lane for at most [rest], if eligible. *)
Definition hand_to (s rest : Z) (f : fair) : option fair :=
  match fair_get f s with
  | Some c =>
      if is_queued c && (f_v c <=? fair_now f) && (0 <? rest) then
        let f1 := protect s (fair_set s (fset_at FLane) f) in
        let part := Z.min rest (slice_of f1 (f_class c)) * units / f_weight c in
        Some (with_protected (Z.min (f_protected f1) (f_v c + Z.max 1 part)) f1)
      else None
  | None => None
  end.

Definition on_lane (f : fair) : option (Z * competitor) :=
  List.find (fun e => is_on_lane (snd e)) (f_all f).

(** Cycles until the one on the lane loses its protection. *)
Definition fair_bound (f : fair) : Z :=
  match on_lane f with
  | Some (_, c) =>
      if f_protected f <=? f_v c then 0
      else ((f_protected f - f_v c) * f_weight c - f_remainder c + units - 1) / units
  | None => 0
  end.

Definition fair_charge (used : Z) (f : fair) : fair :=
  match on_lane f with
  | Some (s, c) =>
      let service := used * units + f_remainder c in
      let v := f_v c + service / f_weight c in
      let d := if f_deadline c <=? v then v + request_of f c else f_deadline c in
      fair_set s (fun c => Competitor (f_at c) (f_weight c) (f_class c)
                             (service mod f_weight c) v d (f_arrival c)) f
  | None => f
  end.

Definition fair_requeue (f : fair) : fair :=
  match on_lane f with Some (s, _) => fair_queue s FQueue f | None => f end.

(** A yield: an eligible one gives up the rest of its request. *)
Definition give_way (f : fair) : fair :=
  match on_lane f with
  | Some (s, c) =>
      fair_requeue
        (if f_v c <=? fair_now f
         then fair_set s (fset_time (f_deadline c) (f_deadline c + request_of f c)) f else f)
  | None => f
  end.

(** Whether the one on the lane loses it at a boundary. *)
Definition fair_prefers_another (f : fair) : bool :=
  match on_lane f with
  | Some (_, c) =>
      let stays := f_v c <=? fair_now f in
      if stays && (f_v c <? f_protected f) then false
      else match first_eligible is_queued f with
      | Some (_, b) =>
          if stays && fair_before c b then false
          else negb (f_class b =? 4) || (f_class c =? 4)
      | None => false
      end
  | None => false
  end.

(** Another weight and class: what is owed times the weight stays. *)
Definition fair_share (s weight class : Z) (f : fair) : fair :=
  match fair_get f s with
  | Some old =>
      let rescale x := x * f_weight old / weight in
      let now := fair_now f in
      let same := class =? f_class old in
      let remainder := f_remainder old * weight / f_weight old in
      let put a v d :=
        fair_set s (fun c => Competitor a weight class remainder v d (f_arrival c)) f in
      match f_at old with
      | FRest lag rest =>
          let rest := match rest with
                      | Some r => if same then Some (Z.max 1 (rescale r)) else None
                      | None => None
                      end in
          put (FRest (rescale lag) rest) (f_v old) (f_deadline old)
      | a =>
          let v := now - rescale (now - f_v old) in
          let rest := if same then Z.max 1 (rescale (f_deadline old - f_v old))
                      else slice_of f class * units / weight in
          let f1 := put a v (v + rest) in
          match a with
          | FLane =>
              let f2 := protect s f1 in
              with_protected
                (Z.min (f_protected f2) (v + rescale (f_protected f - f_v old))) f2
          | _ => fair_queue s a f1
          end
      end
  | None => f
  end.

(** The same for one that no lane of this policy holds. *)
Definition change_luggage (weight class : Z) (g : luggage) : luggage :=
  fst (fair_leave 0 (fair_share 0 weight class (adopt 0 g (new_fair 1 1)))).
