//! The rules of a set and how they depend on each other: what is refused at load, and which entrypoints may be compiled
//! [ENG-2] [ENG-3] [ENG-7].
#![forbid(unsafe_code)]

use crate::builtins::{self, Permission};
use crate::failure::{column, PolicyFault};
use crate::parsing::distinct_keys::keys_are_distinct;
use crate::parsing::mentions::{Call, Mentions};
use crate::parsing::names::{constant, dotted, has_comprehension, head_of, is_plain, Head, Names, Step};
use crate::parsing::walk::mentions;
use crate::rewriting::print_calls::PRINT;
use regorus::unstable::{Expr, Module, Ref, Rule, Span};
use regorus::Value;
use std::collections::{BTreeMap, BTreeSet};

/// How deeply rules and functions may call each other. With the parser's 32 levels of expression, this bounds the stack
/// of an evaluation.
pub const MAX_CALL_DEPTH: usize = 64;
/// Arguments that the compiled form passes to a function of the policy; it drops more silently.
const MAX_COMPILED_ARGUMENTS: usize = 8;

type Path = Vec<String>;

/// A rule or function: all definitions of one path.
pub(crate) struct Node {
    pub path: Path,
    span: Span,
    modules: BTreeSet<usize>,
    pub is_function: bool,
    /// A definition has a computed key.
    is_computed: bool,
    arity: usize,
    pub edges: BTreeSet<usize>,
    /// Why it must not be compiled: what the compiled form would do differently, and where.
    pub interpreted_because: Option<String>,
    /// Its definitions could give different values: the compiled form checks that [ENG-7].
    may_disagree: bool,
}

/// The rules of a set and how they depend on each other.
pub struct Graph {
    pub(crate) nodes: Vec<Node>,
    pub(crate) index: BTreeMap<Path, usize>,
    checks_builtins: bool,
}

fn place(span: &Span) -> String {
    format!("{}:{}:{}", span.source.get_path(), span.line, column(span))
}

impl Graph {
    /// Builds the graph and refuses what may not run at all. A set for another engine may call any builtin: then
    /// `checks_builtins` is false.
    pub fn of(modules: &[Ref<Module>], checks_builtins: bool) -> Result<Self, PolicyFault> {
        let mut graph = Self { nodes: Vec::new(), index: BTreeMap::new(), checks_builtins };
        let names: Vec<Names> = modules.iter().map(|module| Names::of(module)).collect();
        for (module, names) in modules.iter().zip(&names) {
            for rule in &module.policy {
                graph.declare(rule, names);
            }
        }
        let mut definitions: BTreeMap<usize, Vec<(&Ref<Rule>, &Names)>> = BTreeMap::new();
        for (number, (module, names)) in modules.iter().zip(&names).enumerate() {
            for rule in &module.policy {
                let node = graph.index[&head_of(rule, names).path];
                graph.nodes[node].modules.insert(number);
                definitions.entry(node).or_default().push((rule, names));
                graph.connect(node, &mentions(rule, names), names, rule)?;
            }
        }
        for (node, rules) in definitions {
            let node = &mut graph.nodes[node];
            match agreement(&rules) {
                Agreement::Certain => {}
                Agreement::Checked if node.arity < MAX_COMPILED_ARGUMENTS && node.path.iter().all(|n| is_plain(n)) => {
                    node.may_disagree = true;
                }
                Agreement::Checked => {
                    node.interpreted_because
                        .get_or_insert(format!("definitions of {} that may disagree", dotted(&node.path)));
                }
                Agreement::MustBeInterpreted(reason) => {
                    node.interpreted_because.get_or_insert(reason);
                }
            }
            if node.modules.len() > 1 {
                let reason = format!("{} is defined in more than one module", dotted(&node.path));
                node.interpreted_because.get_or_insert(reason);
            }
        }
        graph.refuse_below_computed()?;
        graph.refuse_recursion()?;
        Ok(graph)
    }

    fn declare(&mut self, rule: &Ref<Rule>, names: &Names) {
        let head = head_of(rule, names);
        if let Some(node) = self.index.get(&head.path) {
            self.nodes[*node].is_computed |= head.computed_key.is_some();
            return;
        }
        self.index.insert(head.path.clone(), self.nodes.len());
        self.nodes.push(Node {
            is_function: head.is_function,
            is_computed: head.computed_key.is_some(),
            arity: head.arguments.len(),
            path: head.path,
            span: rule.span().clone(),
            modules: BTreeSet::new(),
            edges: BTreeSet::new(),
            interpreted_because: None,
            may_disagree: false,
        });
    }

    fn connect(&mut self, node: usize, found: &Mentions, names: &Names, rule: &Rule) -> Result<(), PolicyFault> {
        if let Some(span) = &found.with_function {
            return Err(PolicyFault::with_function(span));
        }
        if let Some(span) = &found.minus_of_expression {
            return Err(PolicyFault::unsupported(span, "write `0 - x` for the negative of an expression"));
        }
        if let Some(key) = head_of(rule, names).computed_key {
            if self.checks_builtins && constant(key).is_none() && !matches!(key.as_ref(), Expr::Var { .. }) {
                let message = "give the key of a partial object a name first: `p[k] := v if { k := … }`";
                return Err(PolicyFault::unsupported(rule.span(), message));
            }
        }
        let mut edges = BTreeSet::new();
        let mut interpreted_because = None;
        let head = head_of(rule, names);
        if head.computed_key.is_some() && (head.is_set || head.continues) {
            interpreted_because = Some(format!("more than one value under a computed key at {}", place(rule.span())));
            if head.continues && head.computed_key.is_some_and(|key| constant(key).is_some()) {
                let message = "a key in the midst of a name has to be a text";
                return Err(PolicyFault::unsupported(rule.span(), message));
            }
        }
        for call in &found.calls {
            match self.resolve(call, &names.package) {
                Some(target) => {
                    check_arity(call, self.nodes[target].arity)?;
                    if call.arguments > MAX_COMPILED_ARGUMENTS {
                        interpreted_because.get_or_insert(format!(
                            "a call with more than {MAX_COMPILED_ARGUMENTS} arguments at {}",
                            place(&call.span)
                        ));
                    }
                    edges.insert(target);
                }
                None => {
                    if self.checks_builtins {
                        check_builtin(call)?;
                    }
                    if call.name == builtins::WALK {
                        interpreted_because.get_or_insert(format!("`walk` at {}", place(&call.span)));
                    }
                }
            }
        }
        for reference in &found.references {
            let mut computed = false;
            for (other, candidate) in self.nodes.iter().enumerate() {
                if !candidate.is_function && overlaps(&reference.path, &candidate.path) {
                    edges.insert(other);
                    computed |= reference.path.iter().take(candidate.path.len()).any(|step| *step == Step::Any)
                        || reference.path.len() < candidate.path.len();
                }
            }
            if computed {
                interpreted_because
                    .get_or_insert(format!("rules read through a computed path in {}", place(rule.span())));
            }
        }
        let constructs = [
            (&found.with, "`with`"),
            (&found.minus, "a minus sign"),
            (&found.every_index, "a lookup by a variable of `every`"),
            (&found.keyed_member, "a key before `in`"),
            (&found.discarded, "`_ :=`"),
            (&found.keyed, "an object comprehension whose keys may meet"),
        ];
        for (span, what) in constructs {
            if let Some(span) = span {
                interpreted_because.get_or_insert(format!("{what} at {}", place(span)));
            }
        }
        if matches!(rule, Rule::Default { args, value, .. } if !args.is_empty() || has_comprehension(value)) {
            interpreted_because.get_or_insert(format!("a default that is computed at {}", place(rule.span())));
        }
        let node = &mut self.nodes[node];
        node.edges.extend(edges);
        if let Some(reason) = interpreted_because {
            node.interpreted_because.get_or_insert(reason);
        }
        Ok(())
    }

    /// The policy's function that a call names: by its whole path, or in its package, as the interpreter looks it up.
    fn resolve(&self, call: &Call, package: &[String]) -> Option<usize> {
        let written = call.name.split('.').map(str::to_owned);
        let path: Path = if call.name.starts_with("data.") {
            written.collect()
        } else {
            package.iter().cloned().chain(written).collect()
        };
        self.index.get(&path).copied().filter(|node| self.nodes[*node].is_function)
    }

    /// Neither form merges `p[k] := …` and `p.a := …` as OPA does.
    fn refuse_below_computed(&self) -> Result<(), PolicyFault> {
        for node in self.nodes.iter().filter(|node| node.is_computed) {
            let below = |other: &&Node| other.path.len() > node.path.len() && other.path.starts_with(&node.path);
            if let Some(other) = self.nodes.iter().find(below) {
                let message = format!(
                    "{} is below {}, whose keys are computed; give one of them another name",
                    dotted(&other.path),
                    dotted(&node.path)
                );
                return Err(PolicyFault::unsupported(&other.span, message));
            }
        }
        Ok(())
    }

    /// Depth-first with a stack of its own: the set may be nested more deeply than this thread's stack allows.
    fn refuse_recursion(&self) -> Result<(), PolicyFault> {
        let mut depth: Vec<Option<usize>> = vec![None; self.nodes.len()];
        let mut open = vec![false; self.nodes.len()];
        for start in 0..self.nodes.len() {
            let mut stack = vec![(start, false)];
            while let Some((node, done)) = stack.pop() {
                let edges = &self.nodes[node].edges;
                if done {
                    open[node] = false;
                    let deepest = edges.iter().filter_map(|e| depth[*e]).max().map_or(1, |d| d + 1);
                    depth[node] = Some(deepest);
                    if deepest > MAX_CALL_DEPTH {
                        let message = format!("rules depend on each other more than {MAX_CALL_DEPTH} deep");
                        return Err(PolicyFault::at_span("policy.call-depth", &self.nodes[node].span, message));
                    }
                    continue;
                }
                if depth[node].is_some() || open[node] {
                    continue;
                }
                open[node] = true;
                stack.push((node, true));
                for edge in edges {
                    if open[*edge] {
                        let target = &self.nodes[*edge];
                        let message = format!("{} is recursive", dotted(&target.path));
                        return Err(PolicyFault::at_span("policy.recursion", &target.span, message));
                    }
                    stack.push((*edge, false));
                }
            }
        }
        Ok(())
    }

    /// The node of an entrypoint such as `data.cmf.main.decision`.
    pub fn entrypoint(&self, name: &str) -> Result<usize, PolicyFault> {
        let path: Path = name.split('.').map(str::to_owned).collect();
        match self.index.get(&path) {
            Some(node) if !self.nodes[*node].is_function => Ok(*node),
            _ => Err(PolicyFault::new(
                "policy.no-entrypoint",
                format!("no rule {name}: name one as data.<package>.<rule>"),
            )),
        }
    }

    /// Why this entrypoint must not be compiled; None if it may be.
    pub fn interpreted_because(&self, entrypoint: usize) -> Option<String> {
        self.reachable(entrypoint).into_iter().find_map(|node| self.nodes[node].interpreted_because.clone())
    }

    /// The rules whose definitions could give different values, as the compiled program names them.
    pub fn rules_to_check(&self) -> BTreeSet<String> {
        self.nodes.iter().filter(|node| node.may_disagree).map(|node| dotted(&node.path)).collect()
    }

    /// The modules, by their position in the set, whose rules this entrypoint can reach.
    pub fn modules(&self, entrypoint: usize) -> BTreeSet<usize> {
        self.reachable(entrypoint).into_iter().flat_map(|node| &self.nodes[node].modules).copied().collect()
    }

    fn reachable(&self, from: usize) -> BTreeSet<usize> {
        let mut seen = BTreeSet::from([from]);
        let mut next = vec![from];
        while let Some(node) = next.pop() {
            next.extend(self.nodes[node].edges.iter().filter(|edge| seen.insert(**edge)));
        }
        seen
    }

    /// Refuses data at or above a rule's path: it would hide the rule in the interpreter, but not in OPA.
    pub fn refuse_data_conflicts(&self, data: &Value) -> Result<(), PolicyFault> {
        for node in &self.nodes {
            let mut here = data;
            let inner = node.path.get(1..).unwrap_or_default();
            for (position, name) in inner.iter().enumerate() {
                here = &here[&Value::from(name.as_str())];
                let is_rule = position + 1 == inner.len();
                match here {
                    Value::Undefined => break,
                    Value::Object(_) if !is_rule => {}
                    _ => {
                        let message = format!("data has a value where {} is a rule", dotted(&node.path));
                        return Err(PolicyFault::at_span("policy.data-conflict", &node.span, message));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Whether a reference could read a rule: one path is a prefix of the other; computed steps match any name.
fn overlaps(reference: &[Step], rule: &[String]) -> bool {
    reference.iter().zip(rule).all(|(step, name)| match step {
        Step::Name(own) => own == name,
        Step::Any => true,
    })
}

/// Neither form gives an output argument the meaning that it has in Rego.
fn check_arity(call: &Call, arity: usize) -> Result<(), PolicyFault> {
    let (code, message) = match call.arguments {
        count if count == arity => return Ok(()),
        count if count == arity + 1 && call.statement.is_some() => {
            ("policy.out-parameter", format!("write `x := {}(…)` for an output argument", call.name))
        }
        count => ("policy.arity", format!("{} takes {arity} arguments, not {count}", call.name)),
    };
    Err(PolicyFault::at_span(code, &call.span, message))
}

/// Refuses a call that names neither a function of the policy nor an allowed builtin.
pub fn check_builtin(call: &Call) -> Result<(), PolicyFault> {
    match builtins::permission(&call.name) {
        // Calls of it are still there only for a tool that shows what is printed.
        Permission::Banned if call.name == PRINT && call.statement.is_some() => Ok(()),
        Permission::Allowed { .. } if call.name == builtins::WALK && call.arguments == 2 => Ok(()),
        Permission::Allowed { .. } if call.name == builtins::WALK => {
            Err(PolicyFault::at_span("policy.arity", &call.span, "write `walk(x, [path, value])`"))
        }
        Permission::Allowed { arity } => check_arity(call, arity),
        Permission::Banned => {
            let message = format!("{} is not available to policies in this engine", call.name);
            Err(PolicyFault::at_span("policy.banned-builtin", &call.span, message))
        }
        Permission::Unknown => {
            Err(PolicyFault::at_span("policy.unknown-function", &call.span, format!("no function {}", call.name)))
        }
    }
}

/// Whether two definitions, or two solutions of one, could give different values: the interpreter and OPA call that an
/// error, the compiled form gives undefined or the last value.
enum Agreement {
    Certain,
    /// Only an evaluation can tell: the compiled form checks it, see [`hardening`](crate::program::hardening).
    Checked,
    MustBeInterpreted(String),
}

fn agreement(rules: &[(&Ref<Rule>, &Names)]) -> Agreement {
    let definitions: Vec<(&Rule, Head<'_>, &Names)> = rules
        .iter()
        .filter(|(rule, _)| matches!(rule.as_ref(), Rule::Spec { .. }))
        .map(|(rule, names)| (rule.as_ref(), head_of(rule, names), *names))
        .filter(|(_, head, _)| !head.is_set)
        .collect();
    if let Some((rule, _, _)) = definitions.iter().find(|(_, head, _)| head.computed_key.is_some()) {
        let safe = definitions.len() == 1 && is_safe_partial_object(rule, &definitions[0].1);
        let reason = || format!("a partial object whose keys may meet at {}", place(rule.span()));
        return if safe { Agreement::Certain } else { Agreement::MustBeInterpreted(reason()) };
    }
    let mut values = definitions.iter().map(|(rule, head, _)| only_value(rule, head));
    let first = values.next().flatten();
    let all_same = first.is_some() && values.all(|value| value == first);
    let one_way = definitions.len() <= 1
        && definitions.iter().all(|(rule, _, names)| !has_several_bodies(rule) && !mentions(rule, names).iterates);
    if all_same || one_way {
        Agreement::Certain
    } else {
        Agreement::Checked
    }
}

/// `p { … } { … }`: bodies of which several may hold; those after `else` exclude each other.
fn has_several_bodies(rule: &Rule) -> bool {
    matches!(rule, Rule::Spec { bodies, .. } if bodies.iter().skip(1).any(|body| !body.is_else))
}

/// `p[k] := v if { some k, v in …; conditions }`: each key once, and never without a value.
fn is_safe_partial_object(rule: &Rule, head: &Head<'_>) -> bool {
    let Rule::Spec { bodies, .. } = rule else { return false };
    let (Some(key), [body]) = (head.computed_key, bodies.as_slice()) else { return false };
    let defined =
        head.value.is_none_or(|value| constant(value).is_some() || matches!(value.as_ref(), Expr::Var { .. }));
    defined && keys_are_distinct(key, &body.query)
}

/// The one constant that a definition can give, if there is one.
fn only_value<'a>(rule: &'a Rule, head: &Head<'a>) -> Option<&'a Value> {
    static TRUE: Value = Value::Bool(true);
    let Rule::Spec { bodies, .. } = rule else { return None };
    let first = match head.value {
        None => &TRUE,
        Some(value) => constant(value)?,
    };
    let same =
        bodies.iter().filter_map(|body| body.assign.as_ref()).all(|assign| constant(&assign.value) == Some(first));
    same.then_some(first)
}
