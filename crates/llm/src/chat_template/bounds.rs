//! Limits for templates from files, which are not trusted: on the length of the output, and on the numbers that filters
//! and methods take.

use std::io;

use minijinja::value::{Kwargs, Rest, StringInput, Value, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, filters};
use minijinja_contrib::pycompat;

/// Maximum of columns or lists that a number may ask for.
const MAX_COUNT: usize = 9999;
/// Maximum of bytes of a text; no context has room for more.
const MAX_BYTES: usize = 64 << 20;

/// The text that a template writes.
#[derive(Debug, Default)]
pub(super) struct Text(Vec<u8>);

impl Text {
    pub(super) fn into_string(self) -> String {
        // Templates write nothing but strings.
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

impl io::Write for &mut Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > MAX_BYTES - self.0.len() {
            return Err(io::Error::other(format!("its text is longer than {MAX_BYTES} bytes")));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Replaces the filters and methods that have no limits.
pub(super) fn add_to(environment: &mut Environment<'_>) {
    environment.add_filter("indent", indent);
    environment.add_filter("batch", batch);
    environment.add_filter("slice", slice);
    environment.add_filter("format", format);
    environment.set_unknown_method_callback(method);
}

fn indent(
    value: StringInput<'_>,
    width: Option<usize>,
    first: Option<bool>,
    blank: Option<bool>,
    options: Kwargs,
) -> Result<Value, Error> {
    let asked = width.map_or_else(|| options.peek::<Option<usize>>("width"), |width| Ok(Some(width)))?;
    check(asked.unwrap_or(0))?;
    filters::indent(value, width, first, blank, options)
}

fn batch(state: &State<'_, '_>, value: Value, count: usize, fill: Option<Value>) -> Result<Value, Error> {
    check(count)?;
    filters::batch(state, value, count, fill)
}

fn slice(state: &State<'_, '_>, value: Value, count: usize, fill: Option<Value>) -> Result<Value, Error> {
    check(count)?;
    filters::slice(state, value, count, fill)
}

fn format(state: &mut State<'_, '_>, text: &Value, values: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    check_format(text)?;
    filters::format(state, text, values)
}

fn method(state: &mut State<'_, '_>, value: &Value, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    if name == "format" {
        check_format(value)?;
    }
    pycompat::unknown_method_callback(state, value, name, arguments)
}

/// Widths and precisions are numbers in the format text. Other numbers in it are treated alike.
fn check_format(text: &Value) -> Result<(), Error> {
    let text = text.as_str().unwrap_or_default();
    let numbers =
        text.split(|character: char| !character.is_ascii_digit()).filter(|digits| !digits.is_empty());
    numbers.map(|digits| digits.parse().unwrap_or(usize::MAX)).try_for_each(check)
}

fn check(asked: usize) -> Result<(), Error> {
    if asked <= MAX_COUNT {
        return Ok(());
    }
    let what = format!("a width or count of {asked} is too large; the maximum is {MAX_COUNT}");
    Err(Error::new(ErrorKind::InvalidOperation, what))
}
