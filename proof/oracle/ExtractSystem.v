(** Extraction of the model of machines to OCaml, with the numbers as in Extract.v. *)

From Coq Require Import ZArith Extraction ExtrOcamlBasic ExtrOcamlZBigInt.
From Wavelock Require Import Fair Lane System.

Extract Constant Z.leb => "Big_int_Z.le_big_int".
Extract Constant Z.ltb => "Big_int_Z.lt_big_int".
Extract Constant Z.lxor => "Big_int_Z.xor_big_int".
Extract Constant Z.lor => "Big_int_Z.or_big_int".
Extract Constant Z.land => "Big_int_Z.and_big_int".
Extract Constant Z.div => "(fun a b -> Big_int_Z.(let s = sign_big_int b in
  if s = 0 then zero_big_int else if s > 0 then div_big_int a b
  else div_big_int (minus_big_int a) (minus_big_int b)))".
Extract Constant Z.modulo => "(fun a b -> Big_int_Z.(let s = sign_big_int b in
  if s = 0 then a else if s > 0 then mod_big_int a b
  else minus_big_int (mod_big_int (minus_big_int a) (minus_big_int b))))".

(* Names of their own, for main programs. *)
Definition machine_load := load.
Definition machine_tick := tick.
Definition lane_population := population.
Definition lane_clock := now.
Definition lane_row := row_of.

Extraction "machine.ml" machine_load machine_tick lane_population lane_clock lane_row
  Instruction Config Plan Wire w_phase w_frames w_lanes w_sessions l_kernel c_queue s_tasks
  record_of fresh_luggage.
