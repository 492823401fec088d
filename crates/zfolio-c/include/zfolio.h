/* zfolio.h: memory that is compressed when it is not used.
 *
 * A region is a range of addresses, used like any memory. Its pages stay as
 * they are while all regions of a group fit in the group's limit; then those
 * that are not used are compressed, and come back when they are touched.
 *
 * Link with -lzfolio (pkg-config: zfolio). Functions that can fail return a
 * code: ZFOLIO_OK (0) or a negative one; zfolio_message() says it in words.
 * All functions may be called from any thread, none from a signal handler but
 * zfolio_handle_fault().
 *
 * What has to be known:
 * - A system call given memory that is not there at the moment fails with
 *   EFAULT. Pin the bytes for it (zfolio_pin), or make the group with
 *   ZFOLIO_THREADS, which needs privilege (CAP_SYS_PTRACE or access to
 *   /dev/userfaultfd).
 * - The child of a fork does not have its parent's regions: touching one ends
 *   it with a line that says so.
 * - SIGBUS, and SIGSEGV where that serves (ZFOLIO_PROTECTED), must not be blocked
 *   in a thread that touches a region.
 * - Inside `zfolio run` a region is plain memory, which the run manages.
 */
#ifndef ZFOLIO_H
#define ZFOLIO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this header; zfolio_version() is that of the library. The major
 * number is that of the library's name, libzfolio.so.0: what is declared here
 * stays as long as it does. */
#define ZFOLIO_VERSION_MAJOR 0
#define ZFOLIO_VERSION_MINOR 1
#define ZFOLIO_VERSION (ZFOLIO_VERSION_MAJOR << 16 | ZFOLIO_VERSION_MINOR)

/* Codes. */
#define ZFOLIO_OK 0
#define ZFOLIO_EMPTY (-1)            /* a length of zero */
#define ZFOLIO_TOO_LARGE (-2)        /* no addresses for so many bytes */
#define ZFOLIO_OUT_OF_RANGE (-3)     /* a range that is not in the region */
#define ZFOLIO_PINNED_TOO_MUCH (-4)  /* pins of more than half the limit */
#define ZFOLIO_BAD_LIMIT (-5)        /* below 4 MiB, or out of range */
#define ZFOLIO_LIMIT_IS_SET (-6)     /* regions use one, too far below it */
#define ZFOLIO_TOO_MANY_REGIONS (-7)
#define ZFOLIO_FORKED (-8)           /* in the child of a raw fork */
#define ZFOLIO_UNAVAILABLE (-9)      /* the system refuses what is needed */
#define ZFOLIO_BAD_ARGUMENT (-10)    /* null, or a value that is none */
#define ZFOLIO_OTHER (-11)
#define ZFOLIO_BAD_OPTION (-12)      /* no such option, or not that value */

/* How faults of a group's regions are served. */
#define ZFOLIO_IN_THREAD 0 /* in the thread that touches; no privilege */
#define ZFOLIO_THREADS 1   /* by threads; system calls need no pin */
#define ZFOLIO_PROTECTED 2 /* as ZFOLIO_IN_THREAD, without userfaultfd: by
			    * SIGSEGV, slower. ZFOLIO_IN_THREAD is this where
			    * userfaultfd is refused, or with
			    * ZFOLIO_REGIONS=protect in the environment. */

typedef struct zfolio_group zfolio_group;
typedef struct zfolio_region zfolio_region;
typedef struct zfolio_pin zfolio_pin;

/* Figures of a group. Later versions add fields at the end: `size` is what the
 * caller has room for, sizeof(zfolio_stats). */
typedef struct zfolio_stats {
	size_t size;
	uint64_t high;             /* the limit, bytes */
	uint64_t used;             /* bytes of pages present, and of the pool */
	uint64_t pool;             /* bytes of the pool */
	uint64_t stored_pages;     /* pages compressed now */
	uint64_t compressed_bytes; /* to so many bytes */
	uint64_t pages_out;        /* pages moved out since the start */
	uint64_t pages_in;         /* pages brought back since the start */
	uint64_t faults;           /* faults served */
	uint64_t stall_ns;         /* nanoseconds they waited for memory */
} zfolio_stats;

/* ZFOLIO_VERSION of the library. */
uint32_t zfolio_version(void);

/* What a code means: a string that is never freed. */
const char *zfolio_message(int code);

/* The errno of the last ZFOLIO_UNAVAILABLE in this thread; 0 if there was
 * none. */
int zfolio_errno(void);

/* Sets the limit, bytes, of the group that regions are in if none is named,
 * at any time (ZFOLIO_LIMIT_IS_SET: too many times the first one).
 * Half of the machine's memory if it is never set. */
int zfolio_limit(size_t high);

/* Makes a group with a limit of its own, served in one of the ways above. */
int zfolio_group_new(size_t high, int serving, zfolio_group **group);

/* The same with options of `zfolio run`, by their names there: strings such as
 * "compressor=zstd", "engines=2,verify_compress=1" or "max-pool=40", ended by a
 * null; null for none. There are compressor, folio, split-huge-pages,
 * huge-page-assembly, page-cluster, engines, tier,
 * backing (with a size), max, on-max, max-pool, accept-threshold and no-shrinker; a group that is
 * ZFOLIO_PROTECTED has only the first and those of the pool
 * (ZFOLIO_UNAVAILABLE). */
int zfolio_group_new_with(size_t high, int serving, const char *const *options,
			  zfolio_group **group);

/* Gives up a group; it goes with its last region. Null is nothing. */
void zfolio_group_free(zfolio_group *group);

/* Figures of a group; of the one that regions share if it is null. */
int zfolio_group_stats(const zfolio_group *group, zfolio_stats *stats);

/* All that a group (null: as above) has counted, as JSON by the names of
 * `zfolio run --stats`: counters, folios, mm_stat, classes, engine_queues. Writes
 * at most size bytes, a NUL included, and returns how long the text is, the NUL
 * not included (more than was written if size is too little), or a code. */
int zfolio_group_statistics(const zfolio_group *group, char *text, size_t size);

/* Compacts the zspages of a group's pool (null: as above) as long as that frees
 * any. What was moved and came free is written where the pointers are not null. */
int zfolio_group_compact(const zfolio_group *group, uint64_t *objs_moved,
			 uint64_t *pages_compacted);

/* Reserves len bytes of zeros, in `group`, or in the one that regions share if
 * it is null. They take memory as they are touched. */
int zfolio_reserve(zfolio_group *group, size_t len, zfolio_region **region);

/* Unmaps a region. Nobody may use its memory, or a pin of it, any more. Null
 * is nothing. */
void zfolio_free(zfolio_region *region);

/* A region's first byte, aligned to 2 MiB, and its length. */
void *zfolio_data(zfolio_region *region);
size_t zfolio_len(const zfolio_region *region);

/* Keeps bytes offset .. offset + len in memory until zfolio_unpin: for system
 * calls and for code that must not meet a fault. */
int zfolio_pin_range(zfolio_region *region, size_t offset, size_t len,
		     zfolio_pin **pin);
void zfolio_unpin(zfolio_pin *pin);

/* Advice: the range will not be used for a while; it will be soon; its
 * contents are not needed (whole pages of it read as zeros afterwards). */
int zfolio_cold(zfolio_region *region, size_t offset, size_t len);
int zfolio_willneed(zfolio_region *region, size_t offset, size_t len);
int zfolio_discard(zfolio_region *region, size_t offset, size_t len);

/* For programs whose handler of SIGBUS, or of SIGSEGV where regions are
 * protected, must come first: 1 if `address`
 * (si_addr) was a region's and the access can be repeated (return from the handler), 0 if the
 * signal is about something else. The handler must block all signals. */
int zfolio_handle_fault(void *address);

#ifdef __cplusplus
}
#endif
#endif
