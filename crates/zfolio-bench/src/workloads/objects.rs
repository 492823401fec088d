//! Object graphs: programs of their own, for interpreters.

/// An object graph in Python.
pub(crate) const PYTHON: &str = include_str!("objects.py");

/// An object graph in JavaScript.
pub(crate) const JAVASCRIPT: &str = include_str!("objects.js");

/// An object graph in Java: the source of the class `Objects`.
pub(crate) const JAVA: &str = include_str!("Objects.java");
