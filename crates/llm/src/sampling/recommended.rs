//! The sampling options that a model file recommends: `general.sampling.*`.

use orlop_gguf::{Error as FileError, Metadata};

use super::SamplingOptions;
use crate::Error;

impl SamplingOptions {
    /// The options that a file recommends (`general.sampling.temp`, `top_k`, `top_p`, `min_p`, `penalty_last_n` and
    /// `penalty_repeat`); these options for keys that it does not have. As in llama.cpp, a `top_k` of -1 keeps all tokens,
    /// and a `penalty_last_n` of -1 counts all of them as recent.
    ///
    /// ```
    /// use orlop_gguf::Metadata;
    /// use orlop_llm::SamplingOptions;
    ///
    /// let mut metadata = Metadata::new();
    /// metadata.set("general.sampling.temp", 0.6f32)?;
    /// let options = SamplingOptions::default().recommended(&metadata)?;
    /// assert_eq!((options.temperature, options.top_k), (0.6, 40));
    /// # Ok::<(), orlop_llm::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::BadKey`] and [`Error::File`]: a value out of range, or of another type.
    pub fn recommended(self, metadata: &Metadata) -> Result<SamplingOptions, Error> {
        let keys = Keys(metadata);
        let top_k = keys.count("top_k")?.map(|count| count.unwrap_or(0));
        let repeat_last = keys.count("penalty_last_n")?.map(|count| count.unwrap_or(usize::MAX));
        let temperature = keys.number("temp", |value| value >= 0.0, "it must be at least 0")?;
        let top_p = keys.number("top_p", is_fraction, FRACTION)?;
        let min_p = keys.number("min_p", is_fraction, FRACTION)?;
        let repeat_penalty = keys.number("penalty_repeat", |value| value > 0.0, "it must be positive")?;
        Ok(SamplingOptions {
            repeat_penalty: repeat_penalty.unwrap_or(self.repeat_penalty),
            repeat_last: repeat_last.unwrap_or(self.repeat_last),
            top_k: top_k.unwrap_or(self.top_k),
            top_p: top_p.unwrap_or(self.top_p),
            min_p: min_p.unwrap_or(self.min_p),
            temperature: temperature.unwrap_or(self.temperature),
            ..self
        })
    }
}

const FRACTION: &str = "it must be between 0 and 1";

fn is_fraction(value: f32) -> bool {
    (0.0..=1.0).contains(&value)
}

struct Keys<'a>(&'a Metadata);

impl Keys<'_> {
    /// A finite number that passes `accepts`; an integer is a number, too.
    fn number(
        &self,
        key: &str,
        accepts: impl Fn(f32) -> bool,
        rule: &'static str,
    ) -> Result<Option<f32>, Error> {
        let read = |metadata: &Metadata, key: &str| match metadata.f32(key) {
            Err(error @ FileError::WrongType { .. }) => {
                metadata.i32(key).map(|value| value as f32).map_err(|_| error)
            }
            read => read,
        };
        let key = name(key);
        match self.0.optional(&key, read)? {
            Some(value) if !value.is_finite() || !accepts(value) => {
                Err(Error::BadKey { key, value: value.to_string(), rule })
            }
            value => Ok(value),
        }
    }

    /// A count; `Some(None)` for -1, which means all.
    fn count(&self, key: &str) -> Result<Option<Option<usize>>, Error> {
        let key = name(key);
        match self.0.optional(&key, Metadata::i32)? {
            None => Ok(None),
            Some(-1) => Ok(Some(None)),
            Some(value) => match usize::try_from(value) {
                Ok(count) => Ok(Some(Some(count))),
                Err(_) => {
                    Err(Error::BadKey { key, value: value.to_string(), rule: "it must be at least -1" })
                }
            },
        }
    }
}

fn name(key: &str) -> String {
    format!("general.sampling.{key}")
}

#[cfg(test)]
mod tests {
    use orlop_gguf::MetadataValue;

    use super::*;

    fn recommended(values: &[(&str, MetadataValue)]) -> Result<SamplingOptions, Error> {
        let mut metadata = Metadata::new();
        for (key, value) in values {
            metadata.set(&name(key), value.clone())?;
        }
        SamplingOptions::default().recommended(&metadata)
    }

    #[test]
    fn every_key_of_a_file_replaces_a_default_and_the_others_stay() {
        let options = recommended(&[
            ("temp", 0.6f32.into()),
            ("top_k", 20i32.into()),
            ("top_p", 0.8f32.into()),
            ("min_p", 0.0f32.into()),
            ("penalty_last_n", 128i32.into()),
            ("penalty_repeat", 1.1f32.into()),
        ]);
        let expected = SamplingOptions {
            temperature: 0.6,
            top_k: 20,
            top_p: 0.8,
            min_p: 0.0,
            repeat_last: 128,
            repeat_penalty: 1.1,
            ..SamplingOptions::default()
        };
        assert_eq!(options.unwrap(), expected);
        assert_eq!(recommended(&[]).unwrap(), SamplingOptions::default());
        let only = recommended(&[("top_p", 1.0f32.into())]).unwrap();
        assert_eq!(only, SamplingOptions { top_p: 1.0, ..SamplingOptions::default() });
    }

    #[test]
    fn minus_one_means_all_tokens_and_integers_are_numbers() {
        let options = recommended(&[
            ("top_k", (-1i32).into()),
            ("penalty_last_n", (-1i32).into()),
            ("temp", 1u32.into()),
        ]);
        let options = options.unwrap();
        assert_eq!((options.top_k, options.repeat_last, options.temperature), (0, usize::MAX, 1.0));
    }

    #[test]
    fn bad_values_are_errors_with_the_name_of_the_key() {
        let cases: [(&str, MetadataValue); 11] = [
            ("temp", f32::NAN.into()),
            ("temp", (-0.5f32).into()),
            ("temp", f32::INFINITY.into()),
            ("temp", "warm".into()),
            ("top_k", (-2i32).into()),
            ("top_k", 0.5f32.into()),
            ("top_p", 1.5f32.into()),
            ("min_p", (-0.1f32).into()),
            ("penalty_last_n", u64::MAX.into()),
            ("penalty_repeat", 0.0f32.into()),
            ("penalty_repeat", true.into()),
        ];
        for (key, value) in cases {
            let said = recommended(&[(key, value.clone())]).unwrap_err().to_string();
            assert!(said.contains(&name(key)), "{value:?}: {said}");
        }
    }
}
