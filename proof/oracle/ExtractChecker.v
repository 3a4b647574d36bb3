(** Extraction of the checker of certificates to OCaml; numbers and indices become zarith's. *)

From Coq Require Import NArith Extraction ExtrOcamlBasic ExtrOcamlNatBigInt ExtrOcamlZBigInt.
From Wavelock Require Import Certificate.

Extraction "certify.ml" new_checker admit check code.
