/* The compiled form of mirror.relay.hot.plain.take_plain: the same batches, the same bytes, in less time.

   Optional: without it the Python form is used, and tests/relay/hot/test_forward.py holds the two against each other. It
   decides nothing. What is not plainly a batch that needs a new identity and nothing else is left to Python.

   The checksum is carried over, never recomputed (mirror.records.restamp has the reasoning): with raw(b) the CRC-32C of
   b without its inversions,

       new = old ^ raw(change + zeros),    raw(change + n zero bytes) = raw(change) * x^(8 n)  mod the polynomial.
*/

#include "_native.h"

#include <string.h>

/* Record batch, magic 2: see mirror.records.header. */
enum {
    LENGTH_AT = 8,
    PREFIX_SIZE = 12,
    LEADER_EPOCH_AT = 12,
    MAGIC_AT = 16,
    CRC_AT = 17,
    ATTRIBUTES_AT = 21,
    LAST_DELTA_AT = 23,
    MAX_TIMESTAMP_AT = 35,
    OWNER_AT = 43,
    OWNER_SIZE = 14,
    OWNER_END = OWNER_AT + OWNER_SIZE,
    RECORD_COUNT_AT = 57,
    LEAST_LENGTH = HEADER_SIZE - PREFIX_SIZE,
    MAGIC = 2,
    INDEX_SIZE = 4
};

#define SEQUENCE_MASK 0x7FFFFFFFu

/* ---- Polynomials over GF(2) modulo CRC-32C's, bit-reversed as the CRC is: bit 31 is x^0. --------------------------- */

#define POLYNOMIAL 0x82F63B78u
#define ONE (UINT32_C(1) << 31)
#define POWERS 35 /* 8 n for a batch shorter than 2^31 bytes has so many binary digits at the most */
#define KEPT 1024

static uint32_t power[POWERS];  /* x^(2^k) */
static uint32_t byte_step[256]; /* what the lowest byte of a state becomes when a byte passes */
static struct {
    uint32_t zeros;
    uint32_t factor;
} kept[KEPT]; /* x^(8 zeros) of lengths met before, by zeros modulo KEPT; written under the GIL */

static uint32_t multiplied_by_x(uint32_t a) { return a >> 1 ^ (POLYNOMIAL & (0u - (a & 1u))); }

static uint32_t product(uint32_t a, uint32_t b)
{
    uint32_t sum = 0;
    for (int digit = 31; digit >= 0; digit--) {
        sum ^= b & (0u - (a >> digit & 1u));
        b = multiplied_by_x(b);
    }
    return sum;
}

void take_prepare(void)
{
    power[0] = ONE >> 1;
    for (int k = 1; k < POWERS; k++)
        power[k] = product(power[k - 1], power[k - 1]);
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t state = byte;
        for (int bit = 0; bit < 8; bit++)
            state = multiplied_by_x(state);
        byte_step[byte] = state;
    }
    kept[0].factor = ONE; /* of no zeros; the other slots hold none of their own yet */
}

/* x^(8 zeros): what a raw CRC is multiplied by when so many zero bytes are appended. */
static uint32_t factor_of(uint32_t zeros)
{
    const uint32_t slot = zeros % KEPT;
    if (kept[slot].zeros != zeros) {
        uint32_t factor = ONE;
        for (int k = 0; zeros >> k; k++)
            if (zeros >> k & 1u)
                factor = product(factor, power[k + 3]);
        kept[slot].zeros = zeros;
        kept[slot].factor = factor;
    }
    return kept[slot].factor;
}

static uint32_t raw_crc(const uint8_t *bytes, int size)
{
    uint32_t state = 0;
    for (int i = 0; i < size; i++)
        state = byte_step[(state ^ bytes[i]) & 0xFFu] ^ state >> 8;
    return state;
}

/* ---- Big-endian fields ------------------------------------------------------------------------------------------- */

static int32_t get_i32(const uint8_t *from) { return (int32_t)(uint32_t)get(from, 4); }
static int64_t get_i64(const uint8_t *from) { return (int64_t)get(from, 8); }

/* ---- One batch ---------------------------------------------------------------------------------------------------- */

typedef struct {
    int flexible; /* whether the Produce version writes sizes as varints */
    int32_t index;
    uint8_t owner[OWNER_SIZE]; /* producer id, epoch, base sequence, as they are written */
} Stamp;

/* All that stands in front of a batch's records in a Produce request. The size of it. */
static int write_head(uint8_t *head, const uint8_t *batch, int32_t length, const Stamp *stamp)
{
    uint8_t *to = head, change[OWNER_SIZE];
    uint32_t size = (uint32_t)length + PREFIX_SIZE;

    to = put(to, (uint32_t)stamp->index, INDEX_SIZE);
    to = stamp->flexible ? put_varint(to, size + 1) : put(to, size, 4);
    /* The broker assigns the base offset and the leader's epoch; it refuses any base offset but 0. */
    memcpy(to, batch, HEADER_SIZE);
    memset(to, 0, LENGTH_AT);
    memset(to + LEADER_EPOCH_AT, 0xFF, MAGIC_AT - LEADER_EPOCH_AT);
    memcpy(to + OWNER_AT, stamp->owner, OWNER_SIZE);
    for (int i = 0; i < OWNER_SIZE; i++)
        change[i] = batch[OWNER_AT + i] ^ stamp->owner[i];
    uint32_t carried = product(factor_of(size - OWNER_END), raw_crc(change, OWNER_SIZE));
    put(to + CRC_AT, (uint32_t)get(batch + CRC_AT, 4) ^ carried, 4);
    return (int)(to - head) + HEADER_SIZE;
}

/* ---- The record set ----------------------------------------------------------------------------------------------- */

const char take_doc[] = PyDoc_STR(
    "take(flexible, outbox, buf, at, end, due, index, producer_id, epoch, sequence, most_length, attributes_below)\n"
    "See mirror.relay.hot.plain.take_plain.");

PyObject *take(PyObject *module, PyObject *args)
{
    int flexible, index, attributes_below;
    PyObject *buf;
    Outbox *outbox;
    Py_ssize_t at, end, last_at = -1, count = 0;
    long long due, producer_id, most_length;
    short epoch;
    unsigned int sequence;
    (void)module;
    if (!PyArg_ParseTuple(args, "pO!OnnLiLhILi", &flexible, outbox_type(), &outbox, &buf, &at, &end, &due, &index,
                          &producer_id, &epoch, &sequence, &most_length, &attributes_below))
        return NULL;

    Py_buffer view;
    if (PyObject_GetBuffer(buf, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    if (at < 0 || end > view.len) {
        PyBuffer_Release(&view);
        return PyErr_Format(PyExc_ValueError, "bytes %zd to %zd of a buffer of %zd", at, end, view.len);
    }
    const uint8_t *bytes = view.buf;
    int failed = 0;
    Stamp stamp = {.flexible = flexible, .index = index};
    put(stamp.owner, (uint64_t)producer_id, 8);
    put(stamp.owner + 8, (uint16_t)epoch, 2);
    int32_t leader_epoch = -1;
    int64_t max_timestamp = -1, oldest_ms = INT64_MAX;
    int cut = 0;

    while (end - at >= HEADER_SIZE) {
        const uint8_t *batch = bytes + at;
        const int32_t length = get_i32(batch + LENGTH_AT);
        if (get_i64(batch) != due || batch[MAGIC_AT] != MAGIC || length < LEAST_LENGTH)
            break;
        if (length > end - at - PREFIX_SIZE) {
            cut = 1;
            break;
        }
        const int64_t records = (int64_t)get_i32(batch + LAST_DELTA_AT) + 1;
        const int attributes = (int16_t)get(batch + ATTRIBUTES_AT, 2);
        if (attributes < 0 || attributes >= attributes_below || records <= 0 ||
            records != get_i32(batch + RECORD_COUNT_AT) || length > most_length || due > INT64_MAX - records)
            break;

        const Py_ssize_t stop = at + PREFIX_SIZE + length;
        if (end - stop >= HEADER_SIZE) {
            /* The next header comes from memory while this one is worked on. */
            __builtin_prefetch(bytes + stop);
            __builtin_prefetch(bytes + stop + HEADER_SIZE - 1);
        }
        Entry *entry = outbox_add(outbox);
        if (entry == NULL) {
            failed = 1;
            break;
        }
        put(stamp.owner + 10, sequence, 4);
        entry->head_size = (uint8_t)write_head(entry->head, batch, length, &stamp);
        entry->buf = Py_NewRef(buf);
        entry->start = at + HEADER_SIZE;
        entry->stop = stop;
        entry->records = (int32_t)records;
        outbox_added(outbox);
        count++;
        due += records;
        sequence = (sequence + (uint32_t)records) & SEQUENCE_MASK;
        leader_epoch = get_i32(batch + LEADER_EPOCH_AT);
        max_timestamp = get_i64(batch + MAX_TIMESTAMP_AT);
        if (max_timestamp < oldest_ms)
            oldest_ms = max_timestamp;
        last_at = at;
        at = stop;
    }
    PyBuffer_Release(&view);
    if (failed)
        return NULL;
    return Py_BuildValue("(nnLIiLOnL)", count, at, (long long)due, sequence, (int)leader_epoch,
                         (long long)max_timestamp, cut ? Py_True : Py_False, last_at, (long long)oldest_ms);
}
