//! The C interface of Wavelock: the crate `wavelock` for programs in C, C++ and every language that
//! calls C. The header is `include/wavelock.h`; [`exports`] has what each function does.
//!
//! ```text
//!   C ──▶ exports: pointers to slices, texts and handles; panics caught
//!           ──▶ handles: a number to the object behind it   ──▶ wavelock
//!           ──▶ failure: an error to its code and its text
//! ```
//!
//! Contract: an object is named by a handle, a number with a generation that is never given out
//! twice. So a handle that was dropped, is of another kind or was made up is an error and never
//! another object. A machine that is in use (by another thread, or by the call that called a
//! function of its host) is busy, which is an error too. No panic crosses the boundary, and every
//! function that is refused has changed nothing but the text of the error.
//!
//! What cannot be checked: that a pointer points at as many bytes as its length says. Every pointer
//! is used during the call alone, except for those of a host, which [`exports`] names.
#![deny(unsafe_code)]

pub mod exports;
mod failure;
mod handles;

pub use failure::wavelock_code;
