// The constants of exp, shared by the scalar and the SIMD silu, which do the same operations in the
// same order and so give the same bits.
//
// exp(z) = 2^n exp(r), n = round(z / ln 2), r = z - n ln 2 in [-0.347, 0.347]. Adding kRound, 1.5 x 2^23,
// rounds to an integer and leaves it in the low bits of the sum. ln 2 is subtracted in two parts, the
// first with 9 significant bits, so that n * kLn2High is exact for |n| < 2^15.
#pragma once

namespace windrow::silu_constants {

// exp(-s) of a silu: at the low end 1 + exp is 1 anyway, at the high end exp is infinite (e^89 > 2^128)
// and the quotient 0.
inline constexpr float kLow = -80.0f;
inline constexpr float kHigh = 89.0f;

inline constexpr float kLog2E = 1.44269504088896340736f;
inline constexpr float kRound = 12582912.0f;
inline constexpr float kLn2High = 0.693359375f;
inline constexpr float kLn2Low = -2.12194440054690581e-4f;

// exp(r) by its Taylor polynomial of degree 7: the first term left out, r^8 / 8!, is below 6e-9.
inline constexpr float kTaylor[] = {1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24,
                                    1.0f / 6,    0.5f,       1.0f,       1.0f};

}  // namespace windrow::silu_constants
