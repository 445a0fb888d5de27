//! Buffers with lifetimes as CSV.

use std::collections::HashMap;

use orlop::plan::{BufferSpec, PlanError, Problem};

use crate::failure::Failure;
use crate::input::Input;

/// One line per buffer in [MiniMalloc]'s columns: `id`, `lower`, `upper` and `size` in any order, optionally `alignment`,
/// and any others. A buffer is live in `lower..upper`.
///
/// [MiniMalloc]: https://github.com/google/minimalloc
#[derive(Debug)]
pub(crate) struct ProblemFile {
    pub(crate) name: String,
    pub(crate) problem: Problem,
    /// Names of columns, including surrounding spaces.
    header: Vec<String>,
    /// Per buffer, its line.
    rows: Vec<Row>,
    id: usize,
}

#[derive(Debug)]
struct Row {
    line: usize,
    fields: Vec<String>,
}

/// Positions of the known columns.
struct Columns {
    id: usize,
    lower: usize,
    upper: usize,
    size: usize,
    alignment: Option<usize>,
}

const OFFSET: &str = "offset";

impl ProblemFile {
    /// Parses a file; errors name line and column.
    pub(crate) fn read(input: &Input) -> Result<ProblemFile, Failure> {
        let text = input.text.strip_prefix('\u{feff}').unwrap_or(&input.text);
        let mut lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
        let Some((first, line)) = lines.next() else {
            return Err(Failure::in_file(
                &input.name,
                "line 1",
                "the header is missing; add id,lower,upper,size",
            ));
        };
        let header: Vec<String> = first.split(',').map(str::to_owned).collect();
        let columns = Columns::find(&input.name, line, &header)?;
        let mut file = ProblemFile {
            name: input.name.clone(),
            problem: Problem::default(),
            header,
            rows: Vec::new(),
            id: columns.id,
        };
        let mut ids: HashMap<&str, usize> = HashMap::new();
        for (text, line) in lines {
            let fields: Vec<&str> = text.split(',').map(str::trim).collect();
            if fields.len() != file.header.len() {
                let what = format!(
                    "{} fields, but the header has {}; every line needs one field per column",
                    fields.len(),
                    file.header.len()
                );
                return Err(Failure::in_file(&file.name, format_args!("line {line}"), what));
            }
            let fault = |column: usize, what: String| {
                let column = file.header[column].trim();
                Failure::in_file(&file.name, format_args!("line {line}, column `{column}`"), what)
            };
            let number = |column: usize| whole_number(fields[column]).map_err(|what| fault(column, what));
            if let Some(other) = ids.insert(fields[columns.id], line) {
                let what =
                    format!("`{}` is already used in line {other}; ids must be unique", fields[columns.id]);
                return Err(fault(columns.id, what));
            }
            let (lower, upper) = (number(columns.lower)?, number(columns.upper)?);
            if lower >= upper {
                let what = format!("{upper} is not above lower, {lower}; a lifetime must not be empty");
                return Err(fault(columns.upper, what));
            }
            let size = number(columns.size)?;
            let align = columns.alignment.map_or(Ok(1), number)?;
            let pushed = file.problem.push(BufferSpec::new(size, align, lower..upper));
            if let Err(error) = pushed {
                return Err(match (error, columns.alignment) {
                    (PlanError::BadAlign { .. }, Some(column)) => {
                        fault(column, format!("{align} is not a power of two; use 1, 2, 4, 8, ..."))
                    }
                    (PlanError::SizesOverflow { .. }, _) => fault(columns.size, too_large(size)),
                    (error, _) => fault(columns.size, format!("{error}; remove or correct the line")),
                });
            }
            file.rows.push(Row { line, fields: text.split(',').map(str::to_owned).collect() });
        }
        match file.problem.validate() {
            Ok(()) => Ok(file),
            Err(PlanError::SizesOverflow { buffer }) => Err(Failure::in_file(
                &file.name,
                format_args!("line {}, column `size`", file.line(buffer.index())),
                "the sum of sizes overflows 64 bits here; use smaller sizes",
            )),
            Err(error) => Err(Failure::BadInput(format!("{}: {error}; correct the file", file.name))),
        }
    }

    /// The line number of a buffer, from 1.
    fn line(&self, buffer: usize) -> usize {
        self.rows.get(buffer).map_or(0, |row| row.line)
    }

    /// The id of a buffer.
    pub(crate) fn id(&self, buffer: usize) -> &str {
        self.rows.get(buffer).map_or("", |row| row.fields[self.id].trim())
    }

    /// The file with an `offset` column, added or replaced.
    pub(crate) fn with_offsets(&self, offsets: impl Iterator<Item = u64>) -> String {
        let known = self.header.iter().position(|name| name.trim() == OFFSET);
        let mut text = String::new();
        let mut push = |fields: &[String], offset: &str| {
            let mut fields: Vec<&str> = fields.iter().map(String::as_str).collect();
            match known {
                Some(column) => fields[column] = offset,
                None => fields.push(offset),
            }
            text.push_str(&fields.join(","));
            text.push('\n');
        };
        push(&self.header, OFFSET);
        for (row, offset) in self.rows.iter().zip(offsets) {
            push(&row.fields, &offset.to_string());
        }
        text
    }
}

impl Columns {
    fn find(file: &str, line: usize, header: &[String]) -> Result<Columns, Failure> {
        let fault = |what: String| Failure::in_file(file, format_args!("line {line}"), what);
        let position = |name: &str| header.iter().position(|column| column.trim() == name);
        let needed = |name: &str| {
            let missing = || {
                fault(format!(
                    "the header has no column `{name}`; it must name id, lower, upper and size, separated by commas"
                ))
            };
            position(name).ok_or_else(missing)
        };
        let columns = Columns {
            id: needed("id")?,
            lower: needed("lower")?,
            upper: needed("upper")?,
            size: needed("size")?,
            alignment: position("alignment"),
        };
        for name in ["id", "lower", "upper", "size", "alignment", OFFSET] {
            if header.iter().filter(|column| column.trim() == name).count() > 1 {
                return Err(fault(format!("the header names column `{name}` twice; remove one")));
            }
        }
        Ok(columns)
    }
}

fn whole_number(text: &str) -> Result<u64, String> {
    if text.is_empty() {
        return Err("the field is empty; expected a whole number".to_owned());
    }
    if let Some(rest) = text.strip_prefix('-')
        && rest.bytes().all(|byte| byte.is_ascii_digit())
    {
        return Err(format!("{text} is negative; expected a number from 0"));
    }
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("`{text}` is not a whole number; use decimal digits"));
    }
    text.parse().map_err(|_| too_large(text))
}

fn too_large(number: impl std::fmt::Display) -> String {
    format!("{number} is too large; numbers, rounded up to the alignment, must be below 2^64")
}
