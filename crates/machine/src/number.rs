//! Arithmetic whose meaning WebAssembly fixes and Rust or the host does not: NaN results, rounding,
//! conversions, division.
//!
//! Semantics 7: a NaN result of arithmetic, rounding or conversion is the canonical one. What only
//! moves bits is not here.

use wavelock_abi::FaultCode;

const NAN32: f32 = f32::from_bits(0x7fc0_0000);
const NAN64: f64 = f64::from_bits(0x7ff8_0000_0000_0000);

macro_rules! float {
    (
        $name:ident, $float:ty, $bits:ty, $nan:ident,
        $sqrt:path, $ceil:path, $floor:path, $trunc:path, $nearest:path
    ) => {
        pub(crate) mod $name {
            use super::*;

            #[inline(always)]
            fn of(bits: u64) -> $float {
                <$float>::from_bits(bits as $bits)
            }

            /// The bits of a result, of the canonical NaN if it is one.
            #[inline(always)]
            pub(crate) fn result(value: $float) -> u64 {
                u64::from((if value.is_nan() { $nan } else { value }).to_bits())
            }

            #[inline(always)]
            pub(crate) fn add(a: u64, b: u64) -> u64 {
                result(of(a) + of(b))
            }

            #[inline(always)]
            pub(crate) fn sub(a: u64, b: u64) -> u64 {
                result(of(a) - of(b))
            }

            #[inline(always)]
            pub(crate) fn mul(a: u64, b: u64) -> u64 {
                result(of(a) * of(b))
            }

            /// `a + b * c`, rounded twice.
            #[inline(always)]
            pub(crate) fn add_product(a: u64, b: u64, c: u64) -> u64 {
                add(a, mul(b, c))
            }

            #[inline(always)]
            pub(crate) fn div(a: u64, b: u64) -> u64 {
                result(of(a) / of(b))
            }

            /// The smaller; -0 is smaller than 0, NaN wins.
            #[inline(always)]
            pub(crate) fn min(a: u64, b: u64) -> u64 {
                let (x, y) = (of(a), of(b));
                if x < y {
                    a
                } else if y < x {
                    b
                } else if x == y {
                    // Equal: the bits are the same or the values are zeros; a set sign bit wins.
                    a | b
                } else {
                    u64::from($nan.to_bits())
                }
            }

            /// The larger; 0 is larger than -0, NaN wins.
            #[inline(always)]
            pub(crate) fn max(a: u64, b: u64) -> u64 {
                let (x, y) = (of(a), of(b));
                if x > y {
                    a
                } else if y > x {
                    b
                } else if x == y {
                    a & b
                } else {
                    u64::from($nan.to_bits())
                }
            }

            #[inline(always)]
            pub(crate) fn copysign(a: u64, b: u64) -> u64 {
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                u64::from(a as $bits & !SIGN | b as $bits & SIGN)
            }

            #[inline(always)]
            pub(crate) fn abs(a: u64) -> u64 {
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                u64::from(a as $bits & !SIGN)
            }

            #[inline(always)]
            pub(crate) fn neg(a: u64) -> u64 {
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                u64::from(a as $bits ^ SIGN)
            }

            #[inline(always)]
            pub(crate) fn sqrt(a: u64) -> u64 {
                result($sqrt(of(a)))
            }

            #[inline(never)]
            pub(crate) fn ceil(a: u64) -> u64 {
                result($ceil(of(a)))
            }

            #[inline(never)]
            pub(crate) fn floor(a: u64) -> u64 {
                result($floor(of(a)))
            }

            #[inline(never)]
            pub(crate) fn trunc(a: u64) -> u64 {
                result($trunc(of(a)))
            }

            #[inline(never)]
            pub(crate) fn nearest(a: u64) -> u64 {
                result($nearest(of(a)))
            }

            #[inline(always)]
            pub(crate) fn eq(a: u64, b: u64) -> bool {
                of(a) == of(b)
            }

            #[inline(always)]
            pub(crate) fn lt(a: u64, b: u64) -> bool {
                of(a) < of(b)
            }

            #[inline(always)]
            pub(crate) fn le(a: u64, b: u64) -> bool {
                of(a) <= of(b)
            }
        }
    };
}

float!(single, f32, u32, NAN32, libm::sqrtf, libm::ceilf, libm::floorf, libm::truncf, libm::rintf);
float!(double, f64, u64, NAN64, libm::sqrt, libm::ceil, libm::floor, libm::trunc, libm::rint);

#[inline(always)]
pub(crate) fn demote(bits: u64) -> u64 {
    single::result(f64::from_bits(bits) as f32)
}

#[inline(always)]
pub(crate) fn promote(bits: u64) -> u64 {
    double::result(f64::from(f32::from_bits(bits as u32)))
}

/// A conversion to an integer: in range if above `$low` and below `$high`, both exact in the
/// float's type.
macro_rules! truncations {
    ($($name:ident: $float:ty, $bits:ty => $to:ty, $low:expr, $high:expr;)*) => {
        $(
            #[inline(never)]
            pub(crate) fn $name(bits: u64) -> Result<$to, FaultCode> {
                let value = <$float>::from_bits(bits as $bits);
                if value.is_nan() {
                    return Err(FaultCode::InvalidConversion);
                }
                let fits = $low(value) && value < $high;
                if fits { Ok(value as $to) } else { Err(FaultCode::IntegerOverflow) }
            }
        )*
    };
}

truncations! {
    i32_from_f32: f32, u32 => i32, |value| value >= -2_147_483_648.0, 2_147_483_648.0;
    u32_from_f32: f32, u32 => u32, |value| value > -1.0, 4_294_967_296.0;
    i32_from_f64: f64, u64 => i32, |value| value > -2_147_483_649.0, 2_147_483_648.0;
    u32_from_f64: f64, u64 => u32, |value| value > -1.0, 4_294_967_296.0;
    i64_from_f32: f32, u32 => i64, |value| value >= -9_223_372_036_854_775_808.0, 9_223_372_036_854_775_808.0;
    u64_from_f32: f32, u32 => u64, |value| value > -1.0, 18_446_744_073_709_551_616.0;
    i64_from_f64: f64, u64 => i64, |value| value >= -9_223_372_036_854_775_808.0, 9_223_372_036_854_775_808.0;
    u64_from_f64: f64, u64 => u64, |value| value > -1.0, 18_446_744_073_709_551_616.0;
}

macro_rules! divisions {
    ($($name:ident, $int:ty, $method:ident;)*) => {
        $(
            #[inline(always)]
            pub(crate) fn $name(a: $int, b: $int) -> Result<$int, FaultCode> {
                if b == 0 { Err(FaultCode::IntegerDivideByZero) } else { Ok(a.$method(b)) }
            }
        )*
    };
}

divisions! {
    rem_i32, i32, wrapping_rem;
    div_u32, u32, wrapping_div;
    rem_u32, u32, wrapping_rem;
    rem_i64, i64, wrapping_rem;
    div_u64, u64, wrapping_div;
    rem_u64, u64, wrapping_rem;
}

#[inline(always)]
pub(crate) fn div_i32(a: i32, b: i32) -> Result<i32, FaultCode> {
    if b == 0 {
        Err(FaultCode::IntegerDivideByZero)
    } else {
        a.checked_div(b).ok_or(FaultCode::IntegerOverflow)
    }
}

#[inline(always)]
pub(crate) fn div_i64(a: i64, b: i64) -> Result<i64, FaultCode> {
    if b == 0 {
        Err(FaultCode::IntegerDivideByZero)
    } else {
        a.checked_div(b).ok_or(FaultCode::IntegerOverflow)
    }
}
