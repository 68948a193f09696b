//! The Python module `cmf._native`.
//!
//! - The engine: `PolicySet` and the functions here take and give bytes, and release the interpreter lock while they
//!   work.
//! - Values: [`named_fields`] makes them, [`value_writer`] writes them, [`freezing`] freezes and compares JSON.
//! - Repeated conversations: [`fingerprints`] tells what was there before.

mod fingerprints;
mod freezing;
mod named_fields;
mod value_writer;

use crate::evaluation::tooling::Refusal;
use crate::evaluation::watch;
use crate::failure::{Outcome, PolicyFault};
use crate::policy_set::{Options, PolicySet};
use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::PyBytes;
use std::time::Duration;

create_exception!(
    _native,
    RefusedError,
    PyValueError,
    "A policy set, query or input that is refused: args are (code, message, path, line, column)."
);

/// (`tag`, value, code, detail): `decided`, `undefined`, `failed`, `timeout`.
type Row<'py> = (&'static str, Bound<'py, PyBytes>, &'static str, String);

fn refused(fault: PolicyFault) -> PyErr {
    RefusedError::new_err((fault.code, fault.message, fault.path, fault.line, fault.column))
}

fn refused_tool(refusal: Refusal) -> PyErr {
    match refusal {
        Refusal::Policy(fault) => refused(fault),
        Refusal::Evaluation(failure) => RefusedError::new_err((failure.code, failure.detail, "", 0, 0)),
    }
}

fn row(py: Python<'_>, outcome: Outcome) -> Row<'_> {
    let empty = || PyBytes::new(py, b"");
    match outcome {
        Outcome::Decided(json) => ("decided", PyBytes::new(py, &json), "", String::new()),
        Outcome::Undefined => ("undefined", empty(), "", String::new()),
        Outcome::Failed(failure) => ("failed", empty(), failure.code, failure.detail),
        Outcome::TimedOut => ("timeout", empty(), "", String::new()),
    }
}

#[pyclass(frozen, name = "PolicySet", module = "cmf._native")]
struct PyPolicySet {
    set: PolicySet,
}

#[pymethods]
impl PyPolicySet {
    #[new]
    #[pyo3(signature = (modules, data, entrypoints, *, strict_builtin_errors=true, use_compiled=true, check_every=1_000,
                        max_input_bytes=33_554_432, max_result_bytes=8_388_608, keeps_prints=false))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        modules: Vec<(String, String)>,
        data: PyBackedBytes,
        entrypoints: Vec<String>,
        strict_builtin_errors: bool,
        use_compiled: bool,
        check_every: u64,
        max_input_bytes: usize,
        max_result_bytes: usize,
        keeps_prints: bool,
    ) -> PyResult<Self> {
        let options = Options {
            strict_builtin_errors,
            use_compiled,
            check_every,
            max_input_bytes,
            max_result_bytes,
            keeps_prints,
        };
        py.detach(|| PolicySet::compile(&modules, &data, &entrypoints, options))
            .map(|set| Self { set })
            .map_err(refused)
    }

    fn evaluate<'py>(
        &self,
        py: Python<'py>,
        entrypoints: Vec<String>,
        shared: PyBackedBytes,
        views: Vec<PyBackedBytes>,
        timeout_ms: u64,
    ) -> PyResult<Vec<Row<'py>>> {
        if entrypoints.len() != views.len() {
            return Err(PyValueError::new_err("one entrypoint per view is needed"));
        }
        let views: Vec<&[u8]> = views.iter().map(AsRef::as_ref).collect();
        let timeout = Duration::from_millis(timeout_ms);
        let outcomes = py.detach(|| self.set.evaluate(&entrypoints, &shared, &views, timeout));
        Ok(outcomes.into_iter().map(|outcome| row(py, outcome)).collect())
    }

    #[pyo3(signature = (query, input, timeout_ms=10_000))]
    fn query<'py>(
        &self,
        py: Python<'py>,
        query: &str,
        input: PyBackedBytes,
        timeout_ms: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let answer = py.detach(|| self.set.query(query, &input, Duration::from_millis(timeout_ms)));
        answer.map(|json| PyBytes::new(py, &json)).map_err(refused_tool)
    }

    #[pyo3(signature = (calls, timeout_ms=10_000))]
    fn coverage<'py>(
        &self,
        py: Python<'py>,
        calls: Vec<(String, Vec<u8>)>,
        timeout_ms: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let report = py.detach(|| self.set.coverage(&calls, Duration::from_millis(timeout_ms)));
        report.map(|json| PyBytes::new(py, &json)).map_err(refused_tool)
    }

    #[pyo3(signature = (calls, timeout_ms=10_000))]
    fn printed(&self, py: Python<'_>, calls: Vec<(String, Vec<u8>)>, timeout_ms: u64) -> PyResult<Vec<Vec<String>>> {
        py.detach(|| self.set.printed(&calls, Duration::from_millis(timeout_ms))).map_err(refused_tool)
    }

    #[getter]
    fn forms(&self) -> Vec<(String, Option<String>)> {
        self.set.forms()
    }

    #[getter]
    fn differences(&self) -> u64 {
        self.set.differences()
    }
}

/// Prints no panic message while an evaluation runs on this thread: it may quote the input.
fn quiet_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !watch::is_active() {
            before(info);
        }
    }));
}

/// Turns the stack traces of errors off, which `RUST_BACKTRACE` turns on: regorus makes an error for each value of another
/// type than it was asked for, nobody reads their traces, and each takes a thousand times as long as the error. Whether
/// they are made is settled by the first, so the environment, which child processes inherit, is put back after it.
fn traceless_errors() {
    const NAME: &str = "RUST_LIB_BACKTRACE"; // it goes before RUST_BACKTRACE, and leaves panics alone
    let before = std::env::var_os(NAME);
    if before.is_none() && std::env::var_os("RUST_BACKTRACE").is_none() {
        return;
    }
    std::env::set_var(NAME, "0");
    drop(std::backtrace::Backtrace::capture());
    match before {
        Some(value) => std::env::set_var(NAME, value),
        None => std::env::remove_var(NAME),
    }
}

#[pymodule(gil_used = false)]
mod _native {
    use super::{
        fingerprints, quiet_panics, refused, traceless_errors, PyAny, PyBackedBytes, PyBackedStr, PyBytes, PyModule,
        PyModuleMethods, PyResult, Python,
    };
    use crate::addresses::address;
    use crate::builtins::{self, regexes};
    use crate::facts;
    use crate::json::{selection, spelling};
    use crate::letters;
    use crate::parsing::survey;
    use crate::rewriting::print_calls;
    use pyo3::{pyfunction, Bound};

    #[pymodule_export]
    use super::{PyPolicySet, RefusedError};
    #[pymodule_export]
    use crate::python::fingerprints::Fingerprints;
    #[pymodule_export]
    use crate::python::freezing::freezing;
    #[pymodule_export]
    use crate::python::named_fields::filler;
    #[pymodule_export]
    use crate::python::value_writer::ValueWriter;

    /// The builtins that a policy may call, sorted.
    #[pyfunction]
    fn allowed_builtins() -> Vec<&'static str> {
        builtins::allowed()
    }

    /// The rules of the modules, and what they read and call, as JSON; RefusedError if they may not be a set at all.
    #[pyfunction]
    #[pyo3(name = "survey")]
    fn survey_modules(py: Python<'_>, modules: Vec<(String, String)>) -> PyResult<Bound<'_, PyBytes>> {
        let written = py.detach(|| survey::survey(&modules)).map_err(refused)?;
        Ok(PyBytes::new(py, &written))
    }

    /// The modules without their calls of `print`; RefusedError if they cannot be parsed.
    #[pyfunction]
    fn without_prints(py: Python<'_>, modules: Vec<(String, String)>) -> PyResult<Vec<(String, String)>> {
        py.detach(|| print_calls::without_prints(&modules)).map_err(refused)
    }

    /// Why a pattern cannot be used as in OPA, and what to write instead; None if it can.
    #[pyfunction]
    fn foreign_pattern(pattern: &str) -> Option<(&'static str, &'static str)> {
        regexes::problem(pattern)
    }

    /// The JSON object with only the named members; None if that cannot be told without parsing.
    #[pyfunction]
    fn picked<'py>(py: Python<'py>, object: &[u8], names: Vec<PyBackedStr>) -> Option<Bound<'py, PyBytes>> {
        let names: Vec<&str> = names.iter().map(|name| &**name).collect();
        selection::selected(object, &names).map(|kept| PyBytes::new(py, &kept))
    }

    /// The JSON of a view with the facts that are asked for [INP-7]; None if it has none of them.
    #[pyfunction]
    fn with_facts<'py>(py: Python<'py>, view: Bound<'py, PyBytes>, asked: [bool; 5]) -> Option<Bound<'py, PyBytes>> {
        let held: PyBackedBytes = view.into();
        py.detach(|| facts::with_facts(&held, asked)).map(|whole| PyBytes::new(py, &whole))
    }

    /// The JSON that views share with `spelled_context`; None if it is not needed.
    #[pyfunction]
    fn with_context_facts<'py>(py: Python<'py>, shared: &[u8]) -> Option<Bound<'py, PyBytes>> {
        facts::with_context_facts(shared).map(|whole| PyBytes::new(py, &whole))
    }

    /// A text in plain letters; None if it is.
    #[pyfunction]
    fn plain(text: &str) -> Option<String> {
        let plain = letters::plain(text);
        (plain != text).then(|| plain.into_owned())
    }

    /// Where spans of a text's plain (or folded) form stand in the text.
    #[pyfunction]
    fn in_content(text: &str, is_folded: bool, spans: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
        letters::in_content(text, is_folded, &spans)
    }

    /// Whether two texts are the same once the spaces of JSON are left out of both.
    #[pyfunction]
    fn same_but_spaces(left: &[u8], right: &[u8]) -> bool {
        spelling::same_but_spaces(left, right)
    }

    /// The normal form of a URI; None for an address that has none.
    #[pyfunction]
    fn normal_form(uri: &str) -> Option<String> {
        address::normal_form(uri)
    }

    /// How many items at the beginning of two sequences are the same objects.
    #[pyfunction]
    fn same_start(held: &Bound<'_, PyAny>, given: &Bound<'_, PyAny>) -> PyResult<usize> {
        fingerprints::same_start(held, given)
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        quiet_panics();
        traceless_errors();
        // The default of 256 compiled patterns is fewer than a large set has, and all others are compiled again at
        // every evaluation (127 ms against 3 ms for 400 patterns).
        regorus::cache::configure(regorus::cache::Config { regex: 8_192, glob: 4_096 });
        module.add("ENGINE", concat!("regorus ", "0.14.1"))
    }
}
