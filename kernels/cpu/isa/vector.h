/* vector.h: the intrinsics of the widest vectors of integers that the instruction set has. With AVX2,
 * VECTOR(add_epi32) is _mm256_add_epi32, and VECTOR_BITS(xor) is _mm256_xor_si256. */
#pragma once

#include "kernels/cpu/isa/isa.h"

#if defined __AVX512BW__
#define VECTOR(name) _mm512_##name
#define VECTOR_BITS(name) _mm512_##name##_si512
typedef __m512i isa_integers;
typedef __m512 isa_floats;
#elif defined __AVX2__
#define VECTOR(name) _mm256_##name
#define VECTOR_BITS(name) _mm256_##name##_si256
typedef __m256i isa_integers;
typedef __m256 isa_floats;
#else
#define VECTOR(name) _mm_##name
#define VECTOR_BITS(name) _mm_##name##_si128
typedef __m128i isa_integers;
typedef __m128 isa_floats;
#endif
