/* What a partition has waiting: a deque that keeps plain batches as numbers until somebody looks at them.

   Thousands of batches wait at any time, and each of them as Python objects takes four allocations and seven cache lines,
   which are cold again by the time that it is sent. Here it is one entry of a ring, which is read once.

   The garbage collector does not track it. What it holds (bytes, buffers, frames, and plain tuples of these) never refers
   to an outbox, so that no cycle can go through one; and to track it would be to visit thousands of entries in each pass.
*/

#include "_native.h"

#include <string.h>

enum { ROOM_LEAST = 16, ROOM_KEPT = 256 };

static PyObject *type; /* made once */

static Entry *at(const Outbox *outbox, Py_ssize_t position)
{
    return &outbox->entries[(outbox->first + position) % outbox->room];
}

static void forget(Entry *entry)
{
    Py_CLEAR(entry->object);
    Py_CLEAR(entry->buf);
    Py_CLEAR(entry->frame);
}

Entry *outbox_add(Outbox *outbox)
{
    if (outbox->count == outbox->room) {
        const Py_ssize_t room = outbox->room ? 2 * outbox->room : ROOM_LEAST;
        Entry *entries = PyMem_Calloc((size_t)room, sizeof(Entry));
        if (entries == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        for (Py_ssize_t i = 0; i < outbox->count; i++)
            entries[i] = *at(outbox, i);
        PyMem_Free(outbox->entries);
        outbox->entries = entries;
        outbox->room = room;
        outbox->first = 0;
    }
    return at(outbox, outbox->count);
}

void outbox_added(Outbox *outbox) { outbox->count++; }

Entry *outbox_first(Outbox *outbox) { return outbox->count ? at(outbox, 0) : NULL; }

/* What was much is given back when nothing is left of it. */
static void shrink(Outbox *outbox)
{
    if (outbox->count == 0 && outbox->room > ROOM_KEPT) {
        PyMem_Free(outbox->entries);
        outbox->entries = NULL;
        outbox->room = outbox->first = 0;
    }
}

void outbox_drop_first(Outbox *outbox)
{
    Entry gone = *at(outbox, 0);
    memset(at(outbox, 0), 0, sizeof(Entry));
    outbox->first = (outbox->first + 1) % outbox->room;
    outbox->count--;
    shrink(outbox);
    forget(&gone); /* last: it may run anything */
}

const Entry *outbox_move_first(Outbox *from, Outbox *to)
{
    Entry *entry = outbox_add(to);
    if (entry == NULL)
        return NULL;
    *entry = *at(from, 0);
    outbox_added(to);
    memset(at(from, 0), 0, sizeof(Entry));
    from->first = (from->first + 1) % from->room;
    from->count--;
    shrink(from);
    return entry;
}

Outbox *outbox_of(PyObject *partition, PyObject *name)
{
    PyObject *found = PyObject_GetAttr(partition, name);
    if (found != NULL && !Py_IS_TYPE(found, (PyTypeObject *)outbox_type())) {
        Py_CLEAR(found);
        PyErr_SetString(PyExc_TypeError, "an outbox of another form");
    }
    return (Outbox *)found;
}

PyObject *entry_records(const Entry *entry)
{
    PyObject *slice = NULL, *records = NULL;
    PyObject *start = PyLong_FromSsize_t(entry->start), *stop = PyLong_FromSsize_t(entry->stop);
    if (start != NULL && stop != NULL)
        slice = PySlice_New(start, stop, NULL);
    if (slice != NULL)
        records = PyObject_GetItem(entry->buf, slice);
    Py_XDECREF(start);
    Py_XDECREF(stop);
    Py_XDECREF(slice);
    return records;
}

PyObject *entry_object(const Entry *entry)
{
    if (entry->object != NULL)
        return Py_NewRef(entry->object);
    PyObject *item = NULL, *payload = entry_records(entry);
    PyObject *head = PyBytes_FromStringAndSize((const char *)entry->head, entry->head_size);
    PyObject *records = PyLong_FromLong(entry->records);
    if (payload != NULL && head != NULL && records != NULL)
        item = PyTuple_Pack(4, head, payload, records, entry->frame != NULL ? entry->frame : Py_None);
    Py_XDECREF(payload);
    Py_XDECREF(head);
    Py_XDECREF(records);
    return item;
}

/* ---- As Python sees it -------------------------------------------------------------------------------------------- */

static void outbox_dealloc(PyObject *self)
{
    Outbox *outbox = (Outbox *)self;
    PyTypeObject *own = Py_TYPE(self);
    while (outbox->count)
        outbox_drop_first(outbox);
    PyMem_Free(outbox->entries);
    freefunc release = (freefunc)PyType_GetSlot(own, Py_tp_free);
    release(self);
    Py_DECREF(own);
}

static PyObject *outbox_append(PyObject *self, PyObject *object)
{
    Entry *entry = outbox_add((Outbox *)self);
    if (entry == NULL)
        return NULL;
    entry->object = Py_NewRef(object);
    outbox_added((Outbox *)self);
    Py_RETURN_NONE;
}

static PyObject *outbox_extend(PyObject *self, PyObject *objects)
{
    PyObject *iterator = PyObject_GetIter(objects), *object;
    if (iterator == NULL)
        return NULL;
    while ((object = PyIter_Next(iterator)) != NULL) {
        PyObject *done = outbox_append(self, object);
        Py_DECREF(object);
        if (done == NULL)
            break;
        Py_DECREF(done);
    }
    Py_DECREF(iterator);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *nothing(void)
{
    PyErr_SetString(PyExc_IndexError, "nothing waits there");
    return NULL;
}

static PyObject *outbox_popleft(PyObject *self, PyObject *none)
{
    Outbox *outbox = (Outbox *)self;
    (void)none;
    if (!outbox->count)
        return nothing();
    PyObject *object = entry_object(at(outbox, 0));
    if (object != NULL)
        outbox_drop_first(outbox);
    return object;
}

static PyObject *outbox_pop(PyObject *self, PyObject *none)
{
    Outbox *outbox = (Outbox *)self;
    (void)none;
    if (!outbox->count)
        return nothing();
    Entry *last = at(outbox, outbox->count - 1);
    PyObject *object = entry_object(last);
    if (object != NULL) {
        Entry gone = *last;
        memset(last, 0, sizeof(Entry));
        outbox->count--;
        shrink(outbox);
        forget(&gone);
    }
    return object;
}

static PyObject *outbox_close(PyObject *self, PyObject *frame)
{
    Outbox *outbox = (Outbox *)self;
    if (!outbox->count)
        return nothing();
    Entry *last = at(outbox, outbox->count - 1);
    if (last->object != NULL)
        Py_RETURN_FALSE;
    Py_CLEAR(last->frame);
    last->frame = Py_NewRef(frame);
    Py_RETURN_TRUE;
}

/* Bytes of a batch that is kept as an object; 0: it is a hole; -1 with an exception. */
static Py_ssize_t size_of(PyObject *object)
{
    PyObject *head = PySequence_GetItem(object, 0), *records = NULL;
    const int is_batch = head != NULL ? PyObject_IsTrue(head) : -1;
    Py_ssize_t size = is_batch;
    if (is_batch == 1) {
        records = PySequence_GetItem(object, 1);
        size = records != NULL ? PyObject_Size(records) : -1;
        size += size < 0 ? 0 : HEADER_SIZE;
    }
    Py_XDECREF(records);
    Py_XDECREF(head);
    return size;
}

static PyObject *outbox_sizes(PyObject *self, PyObject *none)
{
    Outbox *outbox = (Outbox *)self;
    Py_ssize_t batches = 0, bytes = 0;
    (void)none;
    for (Py_ssize_t position = 0; position < outbox->count; position++) {
        const Entry *entry = at(outbox, position);
        const Py_ssize_t size =
            entry->object != NULL ? size_of(entry->object) : HEADER_SIZE + entry->stop - entry->start;
        if (size < 0)
            return NULL;
        batches += size > 0;
        bytes += size;
    }
    return Py_BuildValue("(nn)", batches, bytes);
}

static Py_ssize_t outbox_length(PyObject *self) { return ((Outbox *)self)->count; }

/* Python has made a negative position one from the beginning before it asks. */
static PyObject *outbox_item(PyObject *self, Py_ssize_t position)
{
    Outbox *outbox = (Outbox *)self;
    return position < 0 || position >= outbox->count ? nothing() : entry_object(at(outbox, position));
}

static int outbox_set_item(PyObject *self, Py_ssize_t position, PyObject *object)
{
    Outbox *outbox = (Outbox *)self;
    if (object == NULL || position < 0 || position >= outbox->count) {
        nothing();
        return -1;
    }
    Entry gone = *at(outbox, position);
    memset(at(outbox, position), 0, sizeof(Entry));
    at(outbox, position)->object = Py_NewRef(object);
    forget(&gone);
    return 0;
}

static PyMethodDef outbox_methods[] = {
    {"append", outbox_append, METH_O, "Puts an object at the end."},
    {"extend", outbox_extend, METH_O, "Puts objects at the end."},
    {"popleft", outbox_popleft, METH_NOARGS, "Takes out the first object."},
    {"pop", outbox_pop, METH_NOARGS, "Takes out the last object."},
    {"close", outbox_close, METH_O, "Gives the last batch the frame; False: it is an object."},
    {"sizes", outbox_sizes, METH_NOARGS, "How many batches wait, and their bytes."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot outbox_slots[] = {
    {Py_tp_doc, "What waits to be sent: see mirror.relay.hot.native.new_outbox."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, outbox_dealloc},
    {Py_tp_methods, outbox_methods},
    {Py_sq_length, outbox_length},
    {Py_sq_item, outbox_item},
    {Py_sq_ass_item, outbox_set_item},
    {0, NULL},
};

static PyType_Spec outbox_spec = {
    .name = "mirror.relay.hot._native.Outbox",
    .basicsize = sizeof(Outbox),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = outbox_slots,
};

PyObject *outbox_type(void)
{
    if (type == NULL)
        type = PyType_FromSpec(&outbox_spec);
    return type;
}
