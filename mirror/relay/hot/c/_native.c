/* The extension module: four functions and a type; no other state than constants and a cache of numbers. */

#include "_native.h"

int intern(const Name *names, size_t count)
{
    for (const Name *one = names; one < names + count; one++)
        if (*one->name == NULL && (*one->name = PyUnicode_InternFromString(one->text)) == NULL)
            return -1;
    return 0;
}

int append(PyObject *list, PyObject *made)
{
    const int failed = made == NULL || PyList_Append(list, made) < 0;
    Py_XDECREF(made);
    return failed ? -1 : 0;
}

static PyMethodDef methods[] = {
    {"take", take, METH_VARARGS, take_doc},
    {"gather", gather, METH_VARARGS, gather_doc},
    {"acknowledge", acknowledge, METH_VARARGS, acknowledge_doc},
    {"acknowledge_expected", acknowledge_expected, METH_VARARGS, acknowledge_expected_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_native", "What is on the path of every batch, compiled.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void)
{
    PyObject *outbox = outbox_type();
    take_prepare();
    if (outbox == NULL || gather_prepare() < 0 || acks_prepare() < 0)
        return NULL;
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && PyModule_AddObjectRef(module, "Outbox", outbox) < 0)
        Py_CLEAR(module);
    return module;
}
