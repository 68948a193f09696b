//! Queries, line coverage and `print` for the tools of policy authors: never used to judge a message.
#![forbid(unsafe_code)]

use crate::evaluation::batch::INTERPRETER_INTERVAL;
use crate::evaluation::stack::{on_large_stack, NO_STACK};
use crate::evaluation::watch;
use crate::failure::{Failure, PolicyFault};
use crate::json;
use crate::parsing::bracket_limits;
use crate::parsing::prescan;
use crate::parsing::rule_graph::check_builtin;
use crate::parsing::walk::query_mentions;
use crate::policy_set::PolicySet;
use crate::rewriting::for_interpreter::ADDED_DEFINITION;
use regorus::unstable::{Parser, Source};
use regorus::utils::limits::ExecutionTimerConfig;
use regorus::Engine;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Why a tool gets no answer.
pub enum Refusal {
    Policy(PolicyFault),
    Evaluation(Failure),
}

impl PolicySet {
    /// OPA's result set, `{"result": [{"expressions": […], "bindings": {…}}]}`; without `result` if the query is
    /// undefined.
    pub fn query(&self, query: &str, input: &[u8], timeout: Duration) -> Result<Vec<u8>, Refusal> {
        on_large_stack(|| {
            check(query).map_err(Refusal::Policy)?;
            let results = self.ask(query, input, timeout)?;
            let mut out = Vec::new();
            serde_json::to_writer(&mut out, &results).map_err(|_| failed("engine.bad-result"))?;
            Ok(out)
        })
        .unwrap_or_else(|| Err(failed(NO_STACK)))
    }

    /// The lines of each module that were reached by evaluating the entrypoints on the inputs, and those that were not:
    /// `[{"path", "covered": [line…], "not_covered": [line…]}]`.
    pub fn coverage(&self, calls: &[(String, Vec<u8>)], timeout: Duration) -> Result<Vec<u8>, Refusal> {
        on_large_stack(|| {
            let mut engine = self.interpreter.clone();
            engine.set_enable_coverage(true);
            for (entrypoint, input) in calls {
                // A call that fails has reached lines too.
                self.watched(&mut engine, input, timeout, |engine| engine.eval_rule(entrypoint.clone()).is_ok())?;
            }
            let report = engine.get_coverage_report().map_err(|_| failed("engine.error"))?;
            let files: Vec<_> = report
                .files
                .iter()
                .map(|file| {
                    // Definitions that were added after the author's lines are not counted.
                    let last = file.code.lines().count() - file.code.matches(ADDED_DEFINITION).count();
                    let own = |lines: &BTreeSet<u32>| -> Vec<u32> {
                        lines
                            .iter()
                            .copied()
                            .filter(|line| usize::try_from(*line).is_ok_and(|line| line <= last))
                            .collect()
                    };
                    let (covered, not_covered) = (own(&file.covered), own(&file.not_covered));
                    serde_json::json!({"path": file.path, "covered": covered, "not_covered": not_covered})
                })
                .collect();
            serde_json::to_vec(&files).map_err(|_| failed("engine.bad-result"))
        })
        .unwrap_or_else(|| Err(failed(NO_STACK)))
    }

    /// What `print` prints while each entrypoint is evaluated on its input, in order: `path:line: text`.
    pub fn printed(&self, calls: &[(String, Vec<u8>)], timeout: Duration) -> Result<Vec<Vec<String>>, Refusal> {
        let printed =
            on_large_stack(|| calls.iter().map(|(name, input)| self.printed_by(name, input, timeout)).collect());
        printed.unwrap_or_else(|| Err(failed(NO_STACK)))
    }

    fn printed_by(&self, entrypoint: &str, input: &[u8], timeout: Duration) -> Result<Vec<String>, Refusal> {
        let mut engine = self.interpreter.clone();
        // As for coverage: what was printed before a failure is shown.
        self.watched(&mut engine, input, timeout, |engine| engine.eval_rule(entrypoint.to_owned()).is_ok())?;
        engine.take_prints().map_err(|_| failed("engine.error"))
    }

    fn ask(&self, query: &str, input: &[u8], timeout: Duration) -> Result<regorus::QueryResults, Refusal> {
        let mut engine = self.interpreter.clone();
        let (result, (failure, late)) =
            self.watched(&mut engine, input, timeout, |engine| engine.eval_query(query.to_owned(), false))?;
        match (failure, result) {
            _ if late => Err(failed("engine.timeout")),
            (Some(failure), _) => Err(Refusal::Evaluation(failure)),
            (None, Ok(results)) => Ok(results),
            (None, Err(error)) => match error.downcast_ref() {
                Some(regorus::LimitError::TimeLimitExceeded { .. }) => Err(failed("engine.timeout")),
                _ => Err(failed("engine.error")),
            },
        }
    }

    /// The result of an evaluation; and the failure that was recorded, and whether the deadline has passed.
    fn watched<T>(
        &self,
        engine: &mut Engine,
        input: &[u8],
        timeout: Duration,
        work: impl FnOnce(&mut Engine) -> T,
    ) -> Result<(T, (Option<Failure>, bool)), Refusal> {
        let input = json::parse_object(input, self.options.max_input_bytes)
            .map_err(|fault| Refusal::Evaluation(Failure::new(fault.code, format!("byte {}", fault.offset))))?;
        engine.set_input(input);
        let check_interval = INTERPRETER_INTERVAL;
        engine.set_execution_timer_config(ExecutionTimerConfig { limit: timeout, check_interval });
        watch::start(Instant::now().checked_add(timeout), self.options.strict_builtin_errors);
        let result = watch::shielded(|| work(engine));
        let ended = watch::finish();
        result.map(|result| (result, ended)).ok_or_else(|| failed("engine.panic"))
    }
}

fn failed(code: &'static str) -> Refusal {
    Refusal::Evaluation(Failure::new(code, ""))
}

/// Refuses a query for what a rule is refused for.
fn check(query: &str) -> Result<(), PolicyFault> {
    const PATH: &str = "<query>";
    prescan::check(PATH, query)?;
    let refuse = |error| PolicyFault::from_engine("policy.parse", &error);
    let source = Source::from_contents(PATH.to_owned(), query.to_owned()).map_err(refuse)?;
    let mut parser = Parser::new(&source).map_err(refuse)?;
    parser.enable_rego_v1().map_err(refuse)?;
    let parsed = parser.parse_user_query().map_err(refuse)?;
    let found = query_mentions(&parsed);
    bracket_limits::check(found.bracket_work, &parsed.span)?;
    for call in &found.calls {
        if !call.name.starts_with("data.") {
            check_builtin(call)?;
        }
    }
    Ok(())
}
