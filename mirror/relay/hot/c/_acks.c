/* The compiled form of mirror.relay.hot.acks.acknowledge: the same batches booked, in less time. */

#include "_native.h"

#include <stdlib.h>

/* Attributes of mirror.relay.partition.queue.Queue, and what a frame can. */
static PyObject *name_topic_head, *name_index, *name_acknowledged, *name_in_flight, *name_frames, *name_window,
    *name_outbox, *name_queued, *name_release;

int acks_prepare(void)
{
    static const Name names[] = {
        {&name_topic_head, "topic_head"}, {&name_index, "index"},   {&name_acknowledged, "acknowledged"},
        {&name_in_flight, "in_flight"},   {&name_frames, "frames"}, {&name_window, "window"},
        {&name_outbox, "outbox"},         {&name_queued, "queued"}, {&name_release, "release"},
    };
    return intern(names, sizeof names / sizeof names[0]);
}

/* How the answer for one partition begins, in every version that is read here: see mirror.wire.produce. */
enum { BASE_OFFSET_AT = 6, LEAST_ROW = 14 };

typedef struct {
    int64_t base_offset;
    int32_t index;
} Row;

/* One topic of the answer: rows ``first`` to ``stop``, by their index. */
typedef struct {
    PyObject *head; /* borrowed */
    Py_ssize_t first, stop;
} Topic;

typedef struct {
    Row *rows; /* of all topics, as many as the request has partitions */
    Py_ssize_t count;
    Topic *topics;
    Py_ssize_t topic_count;
    PyObject *by_head; /* dict: a topic's head -> its number; NULL with a single topic */
} Answer;

enum Outcome { FAILED = -1, DONE, ANOTHER };

static int by_index(const void *left, const void *right)
{
    const int32_t a = ((const Row *)left)->index, b = ((const Row *)right)->index;
    return (a > b) - (a < b);
}

/* Reads a topic's rows behind those of the topics before it. ANOTHER: there are more than partitions in the request,
   or one of them twice. */
static enum Outcome read_rows(Answer *answer, Topic *topic, const uint8_t *at, Py_ssize_t size, Py_ssize_t row_size)
{
    const Py_ssize_t count = size / row_size;
    if (count > answer->count - topic->first)
        return ANOTHER;
    Row *row = answer->rows + topic->first;
    int in_order = 1;
    for (Py_ssize_t i = 0; i < count; i++, at += row_size) {
        row[i].index = (int32_t)get(at, 4);
        row[i].base_offset = (int64_t)get(at + BASE_OFFSET_AT, 8);
        in_order &= i == 0 || row[i].index > row[i - 1].index;
    }
    if (!in_order)
        qsort(row, (size_t)count, sizeof *row, by_index);
    for (Py_ssize_t i = 1; i < count && !in_order; i++)
        if (row[i].index == row[i - 1].index)
            return ANOTHER;
    topic->stop = topic->first + count;
    return DONE;
}

/* A topic's head, for lookups. ANOTHER: the answer has it twice. */
static enum Outcome remember(Answer *answer, PyObject *head, Py_ssize_t number)
{
    PyObject *known = PyDict_GetItemWithError(answer->by_head, head); /* borrowed */
    if (known != NULL)
        return ANOTHER;
    PyObject *value = PyErr_Occurred() ? NULL : PyLong_FromSsize_t(number);
    const int failed = value == NULL || PyDict_SetItem(answer->by_head, head, value) < 0;
    Py_XDECREF(value);
    return failed ? FAILED : DONE;
}

static enum Outcome read_answer(Answer *answer, PyObject *topics, Py_ssize_t row_size)
{
    enum Outcome outcome = DONE;
    Py_ssize_t read = 0;
    for (Py_ssize_t i = 0; outcome == DONE && i < answer->topic_count; i++) {
        PyObject *head, *rows;
        Topic *topic = answer->topics + i;
        if (!PyArg_ParseTuple(PyList_GetItem(topics, i), "OO", &head, &rows))
            return FAILED;
        topic->head = head;
        topic->first = read;
        if (answer->by_head != NULL)
            outcome = remember(answer, head, i);
        Py_buffer view;
        if (PyObject_GetBuffer(rows, &view, PyBUF_SIMPLE) < 0)
            return FAILED;
        if (outcome == DONE)
            outcome = read_rows(answer, topic, view.buf, view.len, row_size);
        PyBuffer_Release(&view);
        read = topic->stop;
    }
    return outcome == DONE && read != answer->count ? ANOTHER : outcome;
}

/* The number of the topic with this head; -1 with an exception; -2: the answer has it not. */
static Py_ssize_t topic_of(const Answer *answer, PyObject *head)
{
    if (answer->by_head == NULL) {
        const int same = answer->topic_count == 0 ? 0 : PyObject_RichCompareBool(answer->topics[0].head, head, Py_EQ);
        return same < 0 ? -1 : same ? 0 : -2;
    }
    PyObject *number = PyDict_GetItemWithError(answer->by_head, head); /* borrowed */
    return number != NULL ? PyLong_AsSsize_t(number) : PyErr_Occurred() ? -1 : -2;
}

static const Row *row_of(const Answer *answer, const Topic *topic, long index)
{
    const Row wanted = {.index = (int32_t)index};
    if (topic->first == topic->stop)
        return NULL;
    return bsearch(&wanted, answer->rows + topic->first, (size_t)(topic->stop - topic->first), sizeof wanted, by_index);
}

/* The base offset of each partition's batch. ANOTHER: the answer has not one of them. */
static enum Outcome find_bases(const Answer *answer, PyObject *taken, int64_t *bases)
{
    PyObject *last = NULL; /* a topic's head; borrowed from its partition, which the request keeps */
    Py_ssize_t number = 0;
    for (Py_ssize_t i = 0; i < answer->count; i++) {
        PyObject *partition = PyList_GetItem(taken, i); /* borrowed */
        PyObject *head = PyObject_GetAttr(partition, name_topic_head);
        if (head == NULL)
            return FAILED;
        if (head != last)
            number = topic_of(answer, last = head);
        Py_DECREF(head);
        if (number < 0)
            return number == -1 ? FAILED : ANOTHER;
        PyObject *index = PyObject_GetAttr(partition, name_index);
        const long at = index != NULL ? PyLong_AsLong(index) : -1;
        Py_XDECREF(index);
        if (PyErr_Occurred())
            return FAILED;
        const Row *row = row_of(answer, answer->topics + number, at);
        if (row == NULL)
            return ANOTHER;
        bases[i] = row->base_offset;
    }
    return DONE;
}

/* A number that is an attribute. 0, or -1 with an exception. */
static int set_number(PyObject *partition, PyObject *name, long long value)
{
    PyObject *number = PyLong_FromLongLong(value);
    const int failed = number == NULL ? -1 : PyObject_SetAttr(partition, name, number);
    Py_XDECREF(number);
    return failed;
}

/* -1 may be the number, or an exception. */
static long long get_number(PyObject *partition, PyObject *name)
{
    PyObject *number = PyObject_GetAttr(partition, name);
    const long long value = number != NULL ? PyLong_AsLongLong(number) : -1;
    Py_XDECREF(number);
    return value;
}

/* mirror.relay.hot.acks.Acknowledged */
typedef struct {
    PyObject *unexpected, *confirmed;
    int freed;
} Acknowledged;

/* The last batch of a frame lets the frame go. 0, or -1 with an exception. */
static int let_go(PyObject *partition, PyObject *frame, Acknowledged *found)
{
    const long long frames = get_number(partition, name_frames);
    if ((frames == -1 && PyErr_Occurred()) || set_number(partition, name_frames, frames - 1) < 0)
        return -1;
    found->freed = 1;
    PyObject *done = PyObject_CallMethodObjArgs(frame, name_release, NULL);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* Offsets that the batch takes; -1 with an exception. */
static long long records_of(const Entry *entry)
{
    if (entry->object == NULL)
        return entry->records;
    PyObject *records = PyTuple_GetItem(entry->object, 2); /* borrowed */
    return records != NULL ? PyLong_AsLongLong(records) : -1;
}

/* The partition may send again, if it has something to send. 0, or -1 with an exception. */
static int offer(PyObject *partition, PyObject *ready)
{
    Outbox *outbox = outbox_of(partition, name_outbox);
    const int waits = outbox != NULL ? outbox->count > 0 : -1;
    Py_XDECREF((PyObject *)outbox);
    if (waits <= 0)
        return waits;
    PyObject *queued = PyObject_GetAttr(partition, name_queued);
    const int is_queued = queued != NULL ? PyObject_IsTrue(queued) : -1;
    Py_XDECREF(queued);
    if (is_queued != 0)
        return is_queued < 0 ? -1 : 0;
    return PyObject_SetAttr(partition, name_queued, Py_True) < 0 ? -1 : PyList_Append(ready, partition);
}

/* The partition's oldest batch is at ``base``, where it should be. 0, or -1 with an exception. */
static int book_oldest(PyObject *partition, Outbox *in_flight, long long base, Acknowledged *found)
{
    const Entry *entry = outbox_first(in_flight);
    if (entry == NULL) {
        PyErr_SetString(PyExc_IndexError, "an answer, and nothing is under way");
        return -1;
    }
    const long long window = get_number(partition, name_window), records = records_of(entry);
    if (PyErr_Occurred())
        return -1;
    /* An object is made of the batch only if somebody is to see it, or it is one. */
    PyObject *batch = entry->object != NULL || window == 1 ? entry_object(entry) : NULL;
    PyObject *frame = Py_XNewRef(batch != NULL ? PyTuple_GetItem(batch, 3) : entry->frame);
    int failed = PyErr_Occurred() != NULL;
    if (!failed) {
        outbox_drop_first(in_flight);
        if (in_flight->count == 0)
            found->freed = 1;
        failed = set_number(partition, name_acknowledged, base + records) < 0;
    }
    if (!failed && frame != NULL && frame != Py_None)
        failed = let_go(partition, frame, found) < 0;
    if (!failed && window == 1)
        failed = append(found->confirmed, Py_BuildValue("(OLO)", partition, base, batch)) < 0;
    Py_XDECREF(frame);
    Py_XDECREF(batch);
    return failed ? -1 : 0;
}

/* As mirror.relay.hot.acks.book says, of one partition. 0, or -1 with an exception. */
static int book(PyObject *partition, long long base, PyObject *ready, Acknowledged *found)
{
    /* In doubt it is a number that no answer can have, and none of this size. */
    int beyond = 0;
    PyObject *number = PyObject_GetAttr(partition, name_acknowledged);
    const long long due = number != NULL ? PyLong_AsLongLongAndOverflow(number, &beyond) : -1;
    Py_XDECREF(number);
    if (PyErr_Occurred())
        return -1;
    if (beyond || due != base)
        return append(found->unexpected, Py_BuildValue("(OL)", partition, base));
    Outbox *in_flight = outbox_of(partition, name_in_flight);
    const int failed = in_flight == NULL ? -1 : book_oldest(partition, in_flight, base, found);
    Py_XDECREF((PyObject *)in_flight);
    return failed < 0 ? -1 : offer(partition, ready);
}

static PyObject *book_all(PyObject *taken, const int64_t *bases, PyObject *ready)
{
    PyObject *made = NULL;
    Acknowledged found = {.unexpected = PyList_New(0), .confirmed = PyList_New(0)};
    int failed = found.unexpected == NULL || found.confirmed == NULL;
    for (Py_ssize_t i = 0; !failed && i < PyList_Size(taken); i++) {
        PyObject *partition = Py_NewRef(PyList_GetItem(taken, i));
        failed = book(partition, bases[i], ready, &found) < 0;
        Py_DECREF(partition);
    }
    if (!failed)
        made = PyTuple_Pack(3, found.unexpected, found.confirmed, found.freed ? Py_True : Py_False);
    Py_XDECREF(found.unexpected);
    Py_XDECREF(found.confirmed);
    return made;
}

/* ---- As Python sees it -------------------------------------------------------------------------------------------- */

static void clear(Answer *answer)
{
    Py_XDECREF(answer->by_head);
    PyMem_Free(answer->topics);
    PyMem_Free(answer->rows);
}

/* Room for an answer to a request with these partitions. 0, or -1 with an exception. */
static int prepare(Answer *answer, PyObject *taken, Py_ssize_t topic_count, Py_ssize_t row_size)
{
    *answer = (Answer){.count = PyList_Size(taken), .topic_count = topic_count};
    if (row_size < LEAST_ROW) {
        PyErr_Format(PyExc_ValueError, "a row of %zd bytes", row_size);
        return -1;
    }
    answer->rows = PyMem_Calloc((size_t)answer->count + 1, sizeof *answer->rows);
    answer->topics = PyMem_Calloc((size_t)topic_count + 1, sizeof *answer->topics);
    if (answer->rows == NULL || answer->topics == NULL)
        PyErr_NoMemory();
    else if (topic_count > 1)
        answer->by_head = PyDict_New();
    return PyErr_Occurred() ? -1 : 0;
}

/* Books an answer that was read; what Python is told of it. ``outcome``: of reading it. */
static PyObject *booked(Answer *answer, enum Outcome outcome, PyObject *taken, PyObject *ready)
{
    PyObject *found = NULL;
    int64_t *bases = PyMem_Calloc((size_t)answer->count + 1, sizeof *bases);
    if (bases == NULL && outcome == DONE) {
        PyErr_NoMemory();
        outcome = FAILED;
    }
    if (outcome == DONE)
        outcome = find_bases(answer, taken, bases);
    if (outcome == DONE)
        found = book_all(taken, bases, ready);
    else if (outcome == ANOTHER)
        found = Py_NewRef(Py_None);
    PyMem_Free(bases);
    return found;
}

const char acknowledge_doc[] = PyDoc_STR("acknowledge(taken, answer, ready)\nSee mirror.relay.hot.acks.acknowledge.");

PyObject *acknowledge(PyObject *module, PyObject *args)
{
    PyObject *taken, *topics, *ready, *found = NULL;
    Py_ssize_t row_size;
    Answer answer;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!(nO!)O!", &PyList_Type, &taken, &row_size, &PyList_Type, &topics, &PyList_Type,
                          &ready))
        return NULL;
    if (prepare(&answer, taken, PyList_Size(topics), row_size) == 0)
        found = booked(&answer, read_answer(&answer, topics, row_size), taken, ready);
    clear(&answer);
    return found;
}

/* mirror.wire.produce.Expected */
typedef struct {
    PyObject *topic;
    Py_ssize_t partitions, row_size, rows_at, size, plain_size;
    const char *mask, *plain;
} Expected;

/* Whether the frame is the expected answer, and has all the rows. */
static int is_expected(const Py_buffer *frame, const Expected *likely)
{
    const uint8_t *bytes = frame->buf;
    uint8_t other = 0;
    if (frame->len != likely->size || frame->len != likely->plain_size || likely->rows_at < 0 || likely->row_size <= 0 ||
        likely->rows_at > frame->len || likely->partitions > (frame->len - likely->rows_at) / likely->row_size)
        return 0;
    for (Py_ssize_t i = 0; i < frame->len; i++)
        other |= (uint8_t)((bytes[i] & (uint8_t)likely->mask[i]) ^ (uint8_t)likely->plain[i]);
    return other == 0;
}

const char acknowledge_expected_doc[] =
    PyDoc_STR("acknowledge_expected(taken, frame, likely, ready)\nSee mirror.relay.hot.acks.acknowledge_expected.");

PyObject *acknowledge_expected(PyObject *module, PyObject *args)
{
    PyObject *taken, *frame, *ready, *found = NULL;
    Expected likely;
    Py_buffer view;
    Answer answer;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O(Snnny#y#)O!", &PyList_Type, &taken, &frame, &likely.topic, &likely.partitions,
                          &likely.row_size, &likely.rows_at, &likely.mask, &likely.size, &likely.plain,
                          &likely.plain_size, &PyList_Type, &ready))
        return NULL;
    if (PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    if (likely.partitions != PyList_Size(taken) || !is_expected(&view, &likely)) {
        found = Py_NewRef(Py_None);
    } else {
        if (prepare(&answer, taken, 1, likely.row_size) == 0) {
            const Py_ssize_t size = answer.count * likely.row_size;
            answer.topics->head = likely.topic;
            const enum Outcome outcome =
                read_rows(&answer, answer.topics, (const uint8_t *)view.buf + likely.rows_at, size, likely.row_size);
            found = booked(&answer, outcome, taken, ready);
        }
        clear(&answer);
    }
    PyBuffer_Release(&view);
    return found;
}
