//! What regorus reads and OPA reads otherwise or not at all, refused where it stands: imports, functions without
//! arguments, defaults of names in brackets, and functions in the place of data [ENG-3].
#![forbid(unsafe_code)]

use crate::failure::PolicyFault;
use crate::parsing::names::{fixed_path, head_of, Names};
use crate::parsing::walk::mentions;
use regorus::unstable::{Expr, Import, Module, Ref, Rule};
use std::collections::BTreeSet;

pub fn refuse(modules: &[Ref<Module>]) -> Result<(), PolicyFault> {
    let mut functions = BTreeSet::new();
    for module in modules {
        module.imports.iter().try_for_each(refuse_import)?;
        let names = Names::of(module);
        for rule in &module.policy {
            refuse_head(rule, &names)?;
            let head = head_of(rule, &names);
            if head.is_function {
                functions.insert(head.path);
            }
        }
    }
    for module in modules {
        let names = Names::of(module);
        for rule in &module.policy {
            let targets = mentions(rule, &names).with_targets;
            if let Some((_, span)) = targets.iter().find(|(target, _)| functions.contains(target)) {
                return Err(PolicyFault::with_function(span));
            }
        }
    }
    Ok(())
}

fn refuse_import(import: &Import) -> Result<(), PolicyFault> {
    let path = fixed_path(&import.refr).unwrap_or_default();
    let names: Vec<&str> = path.iter().map(String::as_str).collect();
    let message = match (names.as_slice(), import.r#as.as_ref().map(|alias| alias.text())) {
        (["future", "keywords", "contains" | "every" | "if" | "in"] | ["future", "keywords"] | ["rego", "v1"], _) => {
            return Ok(());
        }
        (["future" | "rego", ..], _) => "this import has no meaning here: take it out, and write Rego v1",
        (["data"], None) => "take it out: `data` needs no import",
        (_, Some("data" | "input")) => "give it an alias other than `data` and `input`",
        _ => return Ok(()),
    };
    Err(PolicyFault::at_span("policy.import", &import.span, message))
}

fn refuse_head(rule: &Rule, names: &Names) -> Result<(), PolicyFault> {
    let head = head_of(rule, names);
    let message = match rule {
        _ if head.is_function && head.arguments.is_empty() => "what takes no argument is a rule: write `name := …`",
        Rule::Default { refr, .. } if has_brackets(refr) => "write a default with dots: `default a.b := …`",
        _ => return Ok(()),
    };
    Err(PolicyFault::unsupported(rule.span(), message))
}

fn has_brackets(expr: &Expr) -> bool {
    match expr {
        Expr::RefBrack { .. } => true,
        Expr::RefDot { refr, .. } => has_brackets(refr),
        _ => false,
    }
}
