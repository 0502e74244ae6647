/* The compiled form of mirror.relay.hot.gather.gather: the same requests, byte for byte, in less time.

   No object is made of a batch but the two pieces that the kernel is handed; where batches are small not even these, but
   one piece of a whole request, copied together from where they lie. */

#include "_native.h"

#include <string.h>

/* Attributes of mirror.relay.partition.queue.Queue. */
static PyObject *name_outbox, *name_in_flight, *name_topic_head, *name_window, *name_queued;

int gather_prepare(void)
{
    static const Name names[] = {
        {&name_outbox, "outbox"}, {&name_in_flight, "in_flight"}, {&name_topic_head, "topic_head"},
        {&name_window, "window"}, {&name_queued, "queued"},
    };
    return intern(names, sizeof names / sizeof names[0]);
}

enum {
    FRAME_HEAD_SIZE = 12, /* size, api key, version, correlation id */
    VARINT_MOST = 5
};

typedef struct {
    const uint8_t *bytes; /* borrowed */
    Py_ssize_t size;
} Span;

/* mirror.wire.produce.Framing */
typedef struct {
    int version, compact;
    Span start, between, after_topic;
} Framing;

/* A batch that is under way now. */
typedef struct Sent {
    const Entry *entry; /* in the partition's ring, which nobody touches meanwhile */
    struct Sent *next;  /* of the same topic */
} Sent;

/* The batches of one topic. */
typedef struct {
    PyObject *topic; /* its head; owned */
    Span head;       /* the same as bytes */
    Py_ssize_t count;
    Sent *first, *last;
} Group;

/* What one request is made of. */
typedef struct {
    PyObject *taken, *again;
    PyObject *numbers; /* dict: a topic's head -> the number of its group */
    Group *group;
    Sent *sent;
    Py_ssize_t group_count, sent_count, size, looked_at;
} Request;

enum Outcome { FAILED = -1, LOOKED_AT, FULL };

static void clear(Request *request)
{
    for (Group *group = request->group; group < request->group + request->group_count; group++)
        Py_XDECREF(group->topic);
    PyMem_Free(request->group);
    PyMem_Free(request->sent);
    Py_XDECREF(request->taken);
    Py_XDECREF(request->again);
    Py_XDECREF(request->numbers);
}

static int span_of(PyObject *bytes, Span *span)
{
    char *start;
    if (PyBytes_AsStringAndSize(bytes, &start, &span->size) < 0)
        return -1;
    span->bytes = (const uint8_t *)start;
    return 0;
}

/* ---- What goes into it -------------------------------------------------------------------------------------------- */

/* A group for the topic, which has none yet; NULL with an exception. */
static Group *new_group(Request *request, PyObject *topic)
{
    Group *group = request->group + request->group_count;
    PyObject *number = PyLong_FromSsize_t(request->group_count);
    const int failed =
        number == NULL || PyDict_SetItem(request->numbers, topic, number) < 0 || span_of(topic, &group->head) < 0;
    Py_XDECREF(number);
    if (failed)
        return NULL;
    group->topic = Py_NewRef(topic);
    request->group_count++;
    return group;
}

/* The group of the partition's topic; NULL with an exception. */
static Group *group_of(Request *request, PyObject *partition)
{
    PyObject *topic = PyObject_GetAttr(partition, name_topic_head);
    if (topic == NULL)
        return NULL;
    Group *group = NULL;
    if (request->group_count > 0 && request->group[request->group_count - 1].topic == topic) {
        group = request->group + request->group_count - 1; /* nearly always: a topic's partitions are neighbours */
    } else {
        PyObject *number = PyDict_GetItemWithError(request->numbers, topic); /* borrowed */
        if (number != NULL)
            group = request->group + PyLong_AsSsize_t(number);
        else if (!PyErr_Occurred())
            group = new_group(request, topic);
    }
    Py_DECREF(topic);
    return group;
}

/* Bytes of the batch with its head; 0: it is none, but a hole; -1 with an exception. */
static Py_ssize_t size_of(const Entry *entry)
{
    if (entry->object == NULL)
        return entry->head_size + (entry->stop - entry->start);
    PyObject *head = PyTuple_GetItem(entry->object, 0); /* borrowed */
    const Py_ssize_t head_size = head != NULL ? PyBytes_Size(head) : -1;
    if (head_size <= 0)
        return head_size;
    PyObject *payload = PyTuple_GetItem(entry->object, 1);
    const Py_ssize_t payload_size = payload != NULL ? PyObject_Size(payload) : -1;
    return payload_size < 0 ? -1 : head_size + payload_size;
}

/* The first batch, of so many bytes, leaves the outbox and counts as under way. Whether one more could; -1 with an
   exception. */
static int send(Request *request, PyObject *partition, Outbox *outbox, Outbox *in_flight, Py_ssize_t size)
{
    Group *group = group_of(request, partition);
    if (group == NULL || PyList_Append(request->taken, partition) < 0)
        return -1;
    const Entry *entry = outbox_move_first(outbox, in_flight);
    if (entry == NULL)
        return -1;
    Sent *sent = request->sent + request->sent_count++;
    *sent = (Sent){.entry = entry};
    if (group->count++ == 0)
        group->first = sent;
    else
        group->last->next = sent;
    group->last = sent;
    request->size += size;
    PyObject *window = PyObject_GetAttr(partition, name_window);
    const Py_ssize_t most = window != NULL ? PyLong_AsSsize_t(window) : -1;
    Py_XDECREF(window);
    return PyErr_Occurred() ? -1 : outbox->count > 0 && in_flight->count < most;
}

/* A batch of the partition, if it has one that fits; ``queued`` is false where it has to be offered again. */
static enum Outcome take_one(Request *request, PyObject *partition, Outbox *outbox, Outbox *in_flight,
                             Py_ssize_t max_size, PyObject *holes)
{
    const Entry *entry = outbox_first(outbox);
    int more = 0;
    if (entry != NULL) {
        const Py_ssize_t size = size_of(entry);
        if (size < 0)
            return FAILED;
        if (size == 0) {
            if (in_flight->count == 0 && PyList_Append(holes, partition) < 0)
                return FAILED;
        } else {
            if (request->size > 0 && request->size + size > max_size)
                return FULL;
            if ((more = send(request, partition, outbox, in_flight, size)) < 0)
                return FAILED;
        }
    }
    const int noted =
        more ? PyList_Append(request->again, partition) : PyObject_SetAttr(partition, name_queued, Py_False);
    return noted < 0 ? FAILED : LOOKED_AT;
}

/* The next request's batches, from the front of ``ready``. 0, or -1 with an exception. */
static int collect(Request *request, PyObject *ready, Py_ssize_t max_size, PyObject *holes)
{
    const Py_ssize_t most = PyList_Size(ready);
    request->taken = PyList_New(0);
    request->again = PyList_New(0);
    request->numbers = PyDict_New();
    request->group = PyMem_Calloc((size_t)most + 1, sizeof *request->group); /* of nothing, there may be no memory */
    request->sent = PyMem_Calloc((size_t)most + 1, sizeof *request->sent);
    if (request->taken == NULL || request->again == NULL || request->numbers == NULL)
        return -1;
    if (request->group == NULL || request->sent == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    enum Outcome outcome = LOOKED_AT;
    while (outcome == LOOKED_AT && request->looked_at < PyList_Size(ready)) {
        PyObject *partition = Py_NewRef(PyList_GetItem(ready, request->looked_at));
        Outbox *outbox = outbox_of(partition, name_outbox), *in_flight = NULL;
        if (outbox != NULL)
            in_flight = outbox_of(partition, name_in_flight);
        outcome = in_flight != NULL ? take_one(request, partition, outbox, in_flight, max_size, holes) : FAILED;
        request->looked_at += outcome == LOOKED_AT;
        Py_XDECREF((PyObject *)in_flight);
        Py_XDECREF((PyObject *)outbox);
        Py_DECREF(partition);
    }
    return outcome == FAILED ? -1 : 0;
}

/* ---- How it is written -------------------------------------------------------------------------------------------- */

static uint8_t *copied(uint8_t *to, Span from)
{
    memcpy(to, from.bytes, (size_t)from.size);
    return to + from.size;
}

/* The count in front of an array: four bytes, or as a varint and one more. */
static uint8_t *counted(uint8_t *to, const Framing *framing, Py_ssize_t count)
{
    return framing->compact ? put_varint(to, (uint32_t)count + 1) : put(to, (uint32_t)count, 4);
}

static Py_ssize_t count_size(const Framing *framing, Py_ssize_t count)
{
    uint8_t unused[VARINT_MOST];
    return counted(unused, framing, count) - unused;
}

/* Bytes in front of a topic's first batch: its head, behind the request's own or behind the topic before it. */
static Py_ssize_t lead_size(const Request *request, const Framing *framing, const Group *group)
{
    const Py_ssize_t before = group == request->group
                                  ? FRAME_HEAD_SIZE + framing->start.size + count_size(framing, request->group_count)
                                  : framing->between.size + framing->after_topic.size;
    return before + group->head.size + count_size(framing, group->count);
}

static uint8_t *lead_written(uint8_t *to, const Request *request, const Framing *framing, const Group *group,
                          Py_ssize_t total, uint32_t correlation_id)
{
    if (group == request->group) {
        to = put(to, (uint32_t)(total - 4), 4);
        to = put(to, 0, 2); /* Produce */
        to = put(to, (uint32_t)framing->version, 2);
        to = put(to, correlation_id, 4);
        to = counted(copied(to, framing->start), framing, request->group_count);
    } else {
        to = copied(copied(to, framing->between), framing->after_topic);
    }
    return counted(copied(to, group->head), framing, group->count);
}

static uint8_t *end_written(uint8_t *to, const Framing *framing)
{
    return copied(copied(copied(to, framing->between), framing->after_topic), framing->after_topic);
}

static Py_ssize_t end_size(const Framing *framing) { return framing->between.size + 2 * framing->after_topic.size; }

static Py_ssize_t total_size(const Request *request, const Framing *framing)
{
    Py_ssize_t total = request->size + end_size(framing);
    for (const Group *group = request->group; group < request->group + request->group_count; group++)
        total += lead_size(request, framing, group) + (group->count - 1) * framing->between.size;
    return total;
}

/* A batch's head, which its partition keeps. 0, or -1 with an exception. */
static int head_of(const Entry *entry, Span *head)
{
    if (entry->object != NULL)
        return span_of(PyTuple_GetItem(entry->object, 0), head);
    *head = (Span){.bytes = entry->head, .size = entry->head_size};
    return 0;
}

/* A batch's records in memory; to be released. 0, or -1 with an exception. */
static int records_of(const Entry *entry, Py_buffer *view, Span *records)
{
    PyObject *payload = entry->object == NULL ? entry->buf : PyTuple_GetItem(entry->object, 1); /* borrowed */
    if (payload == NULL || PyObject_GetBuffer(payload, view, PyBUF_SIMPLE) < 0)
        return -1;
    *records = (Span){.bytes = view->buf, .size = view->len};
    if (entry->object == NULL) {
        records->bytes += entry->start;
        records->size = entry->stop - entry->start;
    } else if (view->len != PyObject_Size(payload)) {
        /* The room for it was made by its length. */
        PyErr_SetString(PyExc_TypeError, "records that are not bytes");
        PyBuffer_Release(view);
        return -1;
    }
    return 0;
}

/* The whole request as one piece; NULL with an exception. */
static PyObject *in_one(const Request *request, const Framing *framing, Py_ssize_t total, uint32_t correlation_id)
{
    PyObject *piece = PyBytes_FromStringAndSize(NULL, total);
    uint8_t *to = piece != NULL ? (uint8_t *)PyBytes_AsString(piece) : NULL;
    if (to == NULL)
        return NULL;
    for (const Group *group = request->group; group < request->group + request->group_count; group++) {
        to = lead_written(to, request, framing, group, total, correlation_id);
        for (const Sent *sent = group->first; sent != NULL; sent = sent->next) {
            Span head, records;
            Py_buffer view;
            if (head_of(sent->entry, &head) < 0 || records_of(sent->entry, &view, &records) < 0) {
                Py_DECREF(piece);
                return NULL;
            }
            if (sent != group->first)
                to = copied(to, framing->between);
            to = copied(copied(to, head), records);
            PyBuffer_Release(&view);
        }
    }
    end_written(to, framing);
    return piece;
}

/* Head and records of each batch as pieces of their own, heads with what stands in front of them. 0, or -1 with an
   exception. */
static int in_many(PyObject *pieces, const Request *request, const Framing *framing, Py_ssize_t total,
                   uint32_t correlation_id)
{
    for (const Group *group = request->group; group < request->group + request->group_count; group++) {
        for (const Sent *sent = group->first; sent != NULL; sent = sent->next) {
            const Entry *entry = sent->entry;
            const int is_first = sent == group->first;
            Span head;
            if (head_of(entry, &head) < 0)
                return -1;
            const Py_ssize_t before = is_first ? lead_size(request, framing, group) : framing->between.size;
            PyObject *led_in = PyBytes_FromStringAndSize(NULL, before + head.size);
            uint8_t *to = led_in != NULL ? (uint8_t *)PyBytes_AsString(led_in) : NULL;
            if (to == NULL)
                return -1;
            to = is_first ? lead_written(to, request, framing, group, total, correlation_id)
                          : copied(to, framing->between);
            copied(to, head);
            if (append(pieces, led_in) < 0 ||
                append(pieces, entry->object != NULL ? Py_XNewRef(PyTuple_GetItem(entry->object, 1))
                                                     : entry_records(entry)) < 0)
                return -1;
        }
    }
    PyObject *end = PyBytes_FromStringAndSize(NULL, end_size(framing));
    if (end != NULL)
        end_written((uint8_t *)PyBytes_AsString(end), framing);
    return append(pieces, end);
}

/* ---- As Python sees it -------------------------------------------------------------------------------------------- */

/* Collects and writes one request. Its bytes; 0: there was nothing for it; -1 with an exception. ``ready`` becomes what
   the next one is made of. */
static Py_ssize_t build(PyObject **ready, Py_ssize_t max_size, const Framing *framing, uint32_t correlation_id,
                        Py_ssize_t join_below, PyObject *pieces, PyObject *requests, PyObject *holes)
{
    Request request = {.size = 0};
    PyObject *left = NULL, *again = NULL;
    if (collect(&request, *ready, max_size, holes) == 0)
        left = PyList_GetSlice(*ready, request.looked_at, PyList_Size(*ready));
    if (left != NULL)
        again = PySequence_InPlaceConcat(left, request.again);
    int failed = again == NULL;
    if (!failed && request.sent_count > 0) {
        const Py_ssize_t total = total_size(&request, framing);
        PyObject *topic = request.group_count == 1 ? request.group->topic : Py_None;
        failed = (request.size < join_below * request.sent_count
                      ? append(pieces, in_one(&request, framing, total, correlation_id))
                      : in_many(pieces, &request, framing, total, correlation_id)) < 0 ||
                 append(requests, Py_BuildValue("(OnO)", request.taken, request.size, topic)) < 0;
    }
    if (!failed) {
        Py_DECREF(*ready);
        *ready = Py_NewRef(again);
    }
    Py_XDECREF(again);
    Py_XDECREF(left);
    clear(&request);
    return failed ? -1 : 0;
}

const char gather_doc[] =
    PyDoc_STR("gather(ready, most, max_size, framing, correlation_id, join_below)\nSee mirror.relay.hot.gather.gather.");

PyObject *gather(PyObject *module, PyObject *args)
{
    PyObject *ready, *start, *between, *after_topic, *found = NULL;
    Py_ssize_t most, max_size, join_below;
    Framing framing;
    unsigned int correlation_id;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!nn(iSSSi)In", &PyList_Type, &ready, &most, &max_size, &framing.version, &start,
                          &between, &after_topic, &framing.compact, &correlation_id, &join_below))
        return NULL;
    if (span_of(start, &framing.start) < 0 || span_of(between, &framing.between) < 0 ||
        span_of(after_topic, &framing.after_topic) < 0)
        return NULL;
    PyObject *pieces = PyList_New(0), *requests = PyList_New(0), *holes = PyList_New(0);
    Py_INCREF(ready);
    int failed = pieces == NULL || requests == NULL || holes == NULL;
    while (!failed && PyList_Size(ready) > 0 && PyList_Size(requests) < most) {
        const uint32_t id = (correlation_id + (uint32_t)PyList_Size(requests)) & INT32_MAX;
        failed = build(&ready, max_size, &framing, id, join_below, pieces, requests, holes) < 0;
    }
    if (!failed)
        found = PyTuple_Pack(4, pieces, requests, ready, holes);
    Py_DECREF(ready);
    Py_XDECREF(pieces);
    Py_XDECREF(requests);
    Py_XDECREF(holes);
    return found;
}
