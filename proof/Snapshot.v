(* Snapshots: a state of the machine as a list of numbers, and back.

   A codec is an encoder to numbers and a decoder that takes what it needs from the
   front of a list. Its law: decoding what was encoded gives the value and the rest.
   Codecs of the guests' memory and coroutine states are parameters. *)

From Coq Require Import List Arith NArith Lia Bool.
From Wavelock Require Import Interleave Machine.
Import ListNotations.

Record codec (A : Type) := Codec {
  enc : A -> list N;
  dec : list N -> option (A * list N);
  law : forall a r, dec (enc a ++ r) = Some (a, r) }.

Arguments enc {A}. Arguments dec {A}. Arguments law {A}.

Definition c_N : codec N.
Proof.
  refine (Codec N (fun n => [n]) (fun l => match l with n :: r => Some (n, r) | [] => None end) _).
  reflexivity.
Defined.

(* Through a function with a left inverse. *)
Definition c_map {A B} (c : codec A) (f : B -> A) (g : A -> B) (gf : forall b, g (f b) = b)
  : codec B.
Proof.
  refine (Codec B (fun b => enc c (f b))
    (fun l => match dec c l with Some (a, r) => Some (g a, r) | None => None end) _).
  intros b r. rewrite law, gf. reflexivity.
Defined.

Definition c_nat : codec nat := c_map c_N N.of_nat N.to_nat Nat2N.id.

Definition c_unit : codec unit.
Proof.
  refine (Codec unit (fun _ => []) (fun l => Some (tt, l)) _). intros []. reflexivity.
Defined.

Definition c_pair {A B} (a : codec A) (b : codec B) : codec (A * B).
Proof.
  refine (Codec (A * B) (fun x => enc a (fst x) ++ enc b (snd x))
    (fun l => match dec a l with
              | Some (x, r) => match dec b r with
                               | Some (y, r') => Some ((x, y), r')
                               | None => None
                               end
              | None => None
              end) _).
  intros [x y] r. cbn. rewrite <- app_assoc, law, law. reflexivity.
Defined.

Definition c_sum {A B} (a : codec A) (b : codec B) : codec (A + B).
Proof.
  refine (Codec (A + B) (fun x => match x with inl y => 0%N :: enc a y | inr y => 1%N :: enc b y
      end)
    (fun l => match l with
              | 0%N :: r => match dec a r with Some (y, r') => Some (inl y, r') | None => None end
              | 1%N :: r => match dec b r with Some (y, r') => Some (inr y, r') | None => None end
              | _ => None
              end) _).
  intros [x|x] r; cbn; rewrite law; reflexivity.
Defined.

Fixpoint dec_n {A} (c : codec A) (n : nat) (l : list N) : option (list A * list N) :=
  match n with
  | O => Some ([], l)
  | S n => match dec c l with
           | Some (x, r) => match dec_n c n r with
                            | Some (xs, r') => Some (x :: xs, r')
                            | None => None
                            end
           | None => None
           end
  end.

Lemma dec_n_law {A} (c : codec A) xs : forall r,
  dec_n c (length xs) (flat_map (enc c) xs ++ r) = Some (xs, r).
Proof.
  induction xs as [|x xs IH]; intros r; cbn; auto.
  rewrite <- app_assoc, law, IH. reflexivity.
Qed.

Definition c_list {A} (c : codec A) : codec (list A).
Proof.
  refine (Codec (list A) (fun xs => N.of_nat (length xs) :: flat_map (enc c) xs)
    (fun l => match l with n :: r => dec_n c (N.to_nat n) r | [] => None end) _).
  intros xs r. cbn. rewrite Nat2N.id. apply dec_n_law.
Defined.

Definition c_option {A} (c : codec A) : codec (option A).
Proof.
  refine (c_map (c_sum c_unit c)
    (fun o => match o with None => inl tt | Some x => inr x end)
    (fun s => match s with inl _ => None | inr x => Some x end) _).
  intros [x|]; reflexivity.
Defined.

Definition c_bool : codec bool.
Proof.
  refine (c_map (c_sum c_unit c_unit) (fun b : bool => if b then inr tt else inl tt)
    (fun s => match s with inl _ => false | inr _ => true end) _).
  intros []; reflexivity.
Defined.

Definition c_cid : codec cid := c_pair c_nat c_nat.

Definition c_answer : codec answer.
Proof.
  refine (c_map (c_sum c_N c_N)
    (fun a => match a with Code n => inl n | Value n => inr n end)
    (fun s => match s with inl n => Code n | inr n => Value n end) _).
  intros []; reflexivity.
Defined.

Definition c_effect : codec effect.
Proof.
  refine (c_map
    (c_sum (c_pair c_nat (c_pair c_nat c_N))
       (c_sum (c_pair c_nat (c_pair c_nat (c_pair c_cid c_N)))
          (c_sum (c_pair c_cid c_answer) c_cid)))
    (fun e => match e with
       | Message o k v => inl (o, (k, v))
       | WaitToSend o k c v => inr (inl (o, (k, (c, v))))
       | Wake c a => inr (inr (inl (c, a)))
       | Publish c => inr (inr (inr c))
       end)
    (fun s => match s with
       | inl (o, (k, v)) => Message o k v
       | inr (inl (o, (k, (c, v)))) => WaitToSend o k c v
       | inr (inr (inl (c, a))) => Wake c a
       | inr (inr (inr c)) => Publish c
       end) _).
  intros []; reflexivity.
Defined.

Definition c_post : codec post.
Proof.
  refine (c_map (c_pair c_N (c_pair c_N c_effect))
    (fun p => (p_step p, (p_seq p, p_effect p)))
    (fun x => Post (fst x) (fst (snd x)) (snd (snd x))) _).
  intros []; reflexivity.
Defined.

Definition c_event : codec event.
Proof.
  refine (c_map
    (c_sum (c_pair c_cid c_N) (c_sum c_cid (c_sum c_cid (c_sum (c_pair c_cid c_N)
      (c_sum c_N (c_sum c_N (c_sum (c_pair c_nat (c_pair c_nat c_nat))
        (c_sum (c_pair c_cid (c_pair c_nat c_nat)) (c_sum (c_pair c_nat c_nat)
          (c_sum c_N c_N))))))))))
    (fun e => match e with
       | EStep c u => inl (c, u)
       | EWoken c => inr (inl c)
       | ESpawned c => inr (inr (inl c))
       | EEnded c v => inr (inr (inr (inl (c, v))))
       | EWave t => inr (inr (inr (inr (inl t))))
       | ETimers n => inr (inr (inr (inr (inr (inl n)))))
       | EArrival f o k => inr (inr (inr (inr (inr (inr (inl (f, (o, k))))))))
       | EEntered c o k => inr (inr (inr (inr (inr (inr (inr (inl (c, (o, k)))))))))
       | EClosed o k => inr (inr (inr (inr (inr (inr (inr (inr (inl (o, k)))))))))
       | EFrame n => inr (inr (inr (inr (inr (inr (inr (inr (inr (inl n)))))))))
       | ESync n => inr (inr (inr (inr (inr (inr (inr (inr (inr (inr n)))))))))
       end)
    (fun s => match s with
       | inl (c, u) => EStep c u
       | inr (inl c) => EWoken c
       | inr (inr (inl c)) => ESpawned c
       | inr (inr (inr (inl (c, v)))) => EEnded c v
       | inr (inr (inr (inr (inl t)))) => EWave t
       | inr (inr (inr (inr (inr (inl n))))) => ETimers n
       | inr (inr (inr (inr (inr (inr (inl (f, (o, k)))))))) => EArrival f o k
       | inr (inr (inr (inr (inr (inr (inr (inl (c, (o, k))))))))) => EEntered c o k
       | inr (inr (inr (inr (inr (inr (inr (inr (inl (o, k))))))))) => EClosed o k
       | inr (inr (inr (inr (inr (inr (inr (inr (inr (inl n))))))))) => EFrame n
       | inr (inr (inr (inr (inr (inr (inr (inr (inr (inr n))))))))) => ESync n
       end) _).
  intros []; reflexivity.
Defined.

Definition c_times : codec times.
Proof.
  refine (c_map (c_pair c_N (c_pair c_N (c_pair c_N c_N)))
    (fun t => (clock t, (charged t, (overhead t, idle t))))
    (fun x => let '(a, (b, (c, d))) := x in Times a b c d) _).
  intros []; reflexivity.
Defined.

Definition c_lane : codec lane.
Proof.
  refine (c_map
    (c_pair c_times (c_pair (c_option c_cid) (c_pair c_N (c_pair (c_option c_cid)
      (c_pair (c_list c_cid) (c_pair (c_list (c_pair c_N c_cid)) (c_pair (c_list c_post)
        (c_pair (c_list (c_pair c_cid c_N)) (c_pair c_N (c_pair c_N (c_list c_event)))))))))))
    (fun l => (tm l, (current l, (left l, (last l, (ready l, (sleepers l, (outbox l,
       (credits l, (wave_end l, (steps l, log l)))))))))))
    (fun x => let '(a, (b, (c, (d, (e, (f, (g, (h, (i, (j, k)))))))))) := x in
       Lane a b c d e f g h i j k) _).
  intros []; reflexivity.
Defined.

Definition c_chan : codec chan.
Proof.
  refine (c_map
    (c_pair c_N (c_pair (c_list c_N) (c_pair (c_list c_nat) (c_pair (c_list (c_pair c_cid c_N))
      (c_pair (c_list c_nat) (c_pair c_N c_bool))))))
    (fun c => (capacity c, (queue c, (receivers c, (senders c, (wired c, (free c, closed c)))))))
    (fun x => let '(a, (b, (c, (d, (e, (f, g)))))) := x in Chan a b c d e f g) _).
  intros []; reflexivity.
Defined.

Definition c_phase : codec phase_t.
Proof.
  refine (c_map (c_sum c_N (c_sum c_unit (c_sum c_nat c_nat)))
    (fun p => match p with
       | Boundary n => inl n
       | InFrame => inr (inl tt)
       | InWave t => inr (inr (inl t))
       | Done Finished => inr (inr (inr 0))
       | Done Deadlock => inr (inr (inr 1))
       | Done Frames => inr (inr (inr 2))
       end)
    (fun s => match s with
       | inl n => Boundary n
       | inr (inl _) => InFrame
       | inr (inr (inl t)) => InWave t
       | inr (inr (inr 0)) => Done Finished
       | inr (inr (inr 1)) => Done Deadlock
       | inr (inr (inr _)) => Done Frames
       end) _).
  intros [| | |[]]; reflexivity.
Defined.

Section Snapshot.

Variables mem co : Type.
Variable c_mem : codec mem.
Variable c_co : codec co.

Definition c_coro : codec (coro co).
Proof.
  refine (c_map (c_pair c_co (c_pair c_nat (c_option c_answer)))
    (fun q => (co_state _ q, (co_lane _ q, co_answer _ q)))
    (fun x => Coro _ (fst x) (fst (snd x)) (snd (snd x))) _).
  intros []; reflexivity.
Defined.

Definition c_session : codec (session mem co).
Proof.
  refine (c_map (c_pair c_mem (c_pair (c_list (c_option c_coro)) (c_pair (c_list c_chan)
      (c_list (c_pair c_nat c_nat)))))
    (fun s => (s_mem _ _ s, (s_cos _ _ s, (s_chans _ _ s, s_joins _ _ s))))
    (fun x => let '(a, (b, (c, d))) := x in Session _ _ a b c d) _).
  intros []; reflexivity.
Defined.

Definition c_state : codec (state mem co).
Proof.
  refine (c_map (c_pair (c_list c_lane) (c_pair (c_list c_session) (c_pair (c_list (c_list c_nat))
      (c_pair c_N (c_pair c_N (c_pair c_phase (c_list c_event)))))))
    (fun s => (lanes _ _ s, (sessions _ _ s, (homes _ _ s, (frame _ _ s, (wave _ _ s,
       (phase _ _ s, history _ _ s)))))))
    (fun x => let '(a, (b, (c, (d, (e, (f, g)))))) := x in State _ _ a b c d e f g) _).
  intros []; reflexivity.
Defined.

Definition save (st : state mem co) : list N := enc c_state st.

(* A snapshot with numbers left over is refused. *)
Definition restore (l : list N) : option (state mem co) :=
  match dec c_state l with Some (st, []) => Some st | _ => None end.

Theorem restore_save st : restore (save st) = Some st.
Proof.
  unfold restore, save. assert (H := law c_state st []). rewrite app_nil_r in H.
  rewrite H. reflexivity.
Qed.

Theorem save_injective a b : save a = save b -> a = b.
Proof. intros H. assert (X := restore_save a). rewrite H, restore_save in X. congruence. Qed.

(* A number more is noticed, wherever the snapshot is good. *)
Theorem trailing_is_refused st x r : restore (save st ++ x :: r) = None.
Proof. unfold restore, save. rewrite law. reflexivity. Qed.

Variable slice : mem -> co -> option answer -> N -> slice_result mem co.
Variable choose : list cid -> nat.
Variable cfg : settings.

(* A machine restored continues with the same states and the same log. *)
Theorem restored_run_is_the_same n st :
  option_map (run _ _ slice choose cfg n) (restore (save st))
  = Some (run _ _ slice choose cfg n st).
Proof. rewrite restore_save. reflexivity. Qed.

End Snapshot.
