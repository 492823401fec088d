/* What the test programs share; C11 and C++17. */
#ifndef TEST_H
#define TEST_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zfolio.h>

#define MIB ((size_t)1 << 20)
#define PAGE ((size_t)4096)

#define CHECK(condition)                                                      \
	do {                                                                  \
		if (!(condition)) {                                           \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__,    \
				#condition);                                  \
			exit(1);                                              \
		}                                                             \
	} while (0)

#define OK(call)                                                              \
	do {                                                                  \
		int code_ = (call);                                           \
		if (code_ != ZFOLIO_OK) {                                     \
			fprintf(stderr, "%s:%d: %s: %s (errno %d)\n",         \
				__FILE__, __LINE__, #call,                    \
				zfolio_message(code_), zfolio_errno());       \
			exit(1);                                              \
		}                                                             \
	} while (0)

static inline uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

/* Words of a page: some of them random, so that a page compresses. */
static inline uint64_t word_of(uint64_t page, size_t index)
{
	return index % 16 == 0 ? mix(page * 512 + index) : page;
}

static inline void write_page(void *at, uint64_t page)
{
	uint64_t *words = (uint64_t *)at;
	size_t i;
	for (i = 0; i < PAGE / 8; i++)
		words[i] = word_of(page, i);
}

static inline int is_page(const void *at, uint64_t page)
{
	const uint64_t *words = (const uint64_t *)at;
	size_t i;
	for (i = 0; i < PAGE / 8; i++)
		if (words[i] != word_of(page, i))
			return 0;
	return 1;
}

#endif
