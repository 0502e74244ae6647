/* The compiled forms of what is on the path of every batch; mirror.relay.native says when they are used. */

#ifndef MIRROR_NATIVE_H
#define MIRROR_NATIVE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

extern const char take_doc[], gather_doc[];

/* Once, before anything else of the file is called. 0, or -1 with an exception. */
void take_prepare(void);
int gather_prepare(void);

PyObject *take(PyObject *module, PyObject *args);
PyObject *gather(PyObject *module, PyObject *args);

#endif
