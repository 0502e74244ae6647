/* The compiled forms of what is on the path of every batch; mirror.relay.hot.native says when they are used. */

#ifndef MIRROR_NATIVE_H
#define MIRROR_NATIVE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <stdint.h>

enum {
    HEADER_SIZE = 61,                 /* of a record batch: mirror.records.header */
    HEAD_MOST = 4 + 5 + HEADER_SIZE   /* partition index, size of the record set, header */
};

/* What waits to be sent: a batch as it was fetched, with the head that goes in front of its records, or any object. */
typedef struct {
    PyObject *object; /* NULL: a batch */
    PyObject *buf;    /* the memoryview that has the records at these bytes */
    PyObject *frame;  /* of the last batch of a record set: let go with its acknowledgement; else NULL */
    Py_ssize_t start, stop;
    int32_t records;
    uint8_t head_size, head[HEAD_MOST];
} Entry;

/* mirror.relay.hot.native.Outbox: a deque of such entries. */
typedef struct {
    PyObject_HEAD
    Entry *entries; /* a ring: ``count`` of ``room``, from ``first`` on */
    Py_ssize_t room, first, count;
} Outbox;

PyObject *outbox_type(void);             /* borrowed; NULL with an exception */
Entry *outbox_add(Outbox *outbox);       /* room for one more at the end, not counted yet; NULL with an exception */
void outbox_added(Outbox *outbox);       /* it counts */
Entry *outbox_first(Outbox *outbox);     /* NULL, without an exception: there is none */
void outbox_drop_first(Outbox *outbox);
const Entry *outbox_move_first(Outbox *from, Outbox *to); /* to the end; where it is now, NULL with an exception */
Outbox *outbox_of(PyObject *partition, PyObject *name);   /* this attribute; a new reference, NULL with an exception */
PyObject *entry_object(const Entry *entry);  /* as Python sees it; a new reference, NULL with an exception */
PyObject *entry_records(const Entry *entry); /* of a batch, its records; likewise */

/* A name of Python's that is looked up all the time, made once. */
typedef struct {
    PyObject **name;
    const char *text;
} Name;

int intern(const Name *names, size_t count);  /* 0, or -1 with an exception */
int append(PyObject *list, PyObject *made);    /* what was just made, or NULL; it is the list's; likewise */

/* Fields as Kafka writes them: big-endian, or seven bits to the byte. */
static inline uint64_t get(const uint8_t *from, int size)
{
    uint64_t value = 0;
    for (int i = 0; i < size; i++)
        value = value << 8 | from[i];
    return value;
}

static inline uint8_t *put(uint8_t *to, uint64_t value, int size)
{
    for (int i = size - 1; i >= 0; i--, value >>= 8)
        to[i] = (uint8_t)value;
    return to + size;
}

static inline uint8_t *put_varint(uint8_t *to, uint32_t value)
{
    for (; value > 0x7F; value >>= 7)
        *to++ = (uint8_t)(value | 0x80);
    *to++ = (uint8_t)value;
    return to;
}

extern const char take_doc[], gather_doc[], acknowledge_doc[], acknowledge_expected_doc[];
PyObject *take(PyObject *module, PyObject *args);
PyObject *gather(PyObject *module, PyObject *args);
PyObject *acknowledge(PyObject *module, PyObject *args);
PyObject *acknowledge_expected(PyObject *module, PyObject *args);

/* Once, before anything else of the file is called. 0, or -1 with an exception. */
void take_prepare(void);
int gather_prepare(void);
int acks_prepare(void);

#endif
