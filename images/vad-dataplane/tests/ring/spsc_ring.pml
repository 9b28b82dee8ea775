/* Every interleaving of one producer and one consumer on a ring of two slots, for spin.
 *
 * Memory orders are modelled, not assumed: a store may become visible late. A message's bytes are two stores and the
 * producer's position is a third; with RELEASE=1 the position becomes visible after them, with RELEASE=0 at any time.
 * Likewise the consumer's reads are over before it hands the slot back (HAND_BACK=1), or may still be under way (0). The
 * relaxed variants have to fail, or this model proves nothing; so does a producer that counts a slot too many.
 */
#ifndef RELEASE
#define RELEASE 1
#endif
#ifndef HAND_BACK
#define HAND_BACK 1
#endif

#define SLOTS 2
#define MESSAGES 5
#ifndef CAPACITY
#define CAPACITY SLOTS /* what the producer takes for free ahead of the consumer */
#endif

byte left[SLOTS];  /* the two halves of a message */
byte right[SLOTS];
byte written;  /* the producer's position */
byte read;  /* the consumer's */

proctype producer() {
    byte n = 0;
    byte slot;
    byte free_until = CAPACITY;
    do
    :: n < MESSAGES ->
        slot = n % SLOTS;
        if /* claim(): wait until it is free */
        :: n < free_until
        :: else ->
            read + CAPACITY > n;
            free_until = read + CAPACITY
        fi;
#if RELEASE
        left[slot] = n + 1;
        right[slot] = n + 1;
        written = n + 1; /* commit() */
#else
        if
        :: left[slot] = n + 1; right[slot] = n + 1; written = n + 1
        :: left[slot] = n + 1; written = n + 1; right[slot] = n + 1
        :: written = n + 1; left[slot] = n + 1; right[slot] = n + 1
        fi;
#endif
        n++
    :: else -> break
    od
}

proctype consumer() {
    byte n = 0;
    byte slot;
    byte ready_until = 0;
    do
    :: n < MESSAGES ->
        slot = n % SLOTS;
        if /* peek(): wait until it is there */
        :: n < ready_until
        :: else ->
            written > n;
            ready_until = written
        fi;
#if HAND_BACK
        assert(left[slot] == n + 1);
        assert(right[slot] == n + 1);
        read = n + 1; /* release() */
#else
        assert(left[slot] == n + 1);
        read = n + 1;
        assert(right[slot] == n + 1);
#endif
        n++
    :: else -> break
    od
}

init {
    atomic {
        run producer();
        run consumer()
    }
}

/* Nobody waits for ever: also found as an invalid end state. */
ltl everything_arrives { <> (read == MESSAGES) }
