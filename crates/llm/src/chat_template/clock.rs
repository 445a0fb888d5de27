//! Dates for templates that tell the model what day it is.

use std::time::{SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// Seconds since the Unix epoch.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// A moment in UTC, formatted as by `strftime`; unknown directives stay as they are.
pub(super) fn format(format: &str, seconds: u64) -> String {
    let days = seconds / 86_400;
    let (year, month, day, day_of_year) = date(days);
    let (month_name, day_name) = (MONTHS[month - 1], DAYS[(days % 7) as usize]);
    let [hour, minute, second] = [seconds / 3600 % 24, seconds / 60 % 60, seconds % 60];
    let mut text = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        match characters.next() {
            Some('Y') => text.push_str(&year.to_string()),
            Some('y') => text.push_str(&format!("{:02}", year % 100)),
            Some('m') => text.push_str(&format!("{month:02}")),
            Some('d') => text.push_str(&format!("{day:02}")),
            Some('j') => text.push_str(&format!("{day_of_year:03}")),
            Some('B') => text.push_str(month_name),
            Some('b') => text.push_str(&month_name[..3]),
            Some('A') => text.push_str(day_name),
            Some('a') => text.push_str(&day_name[..3]),
            Some('H') => text.push_str(&format!("{hour:02}")),
            Some('I') => text.push_str(&format!("{:02}", (hour + 11) % 12 + 1)),
            Some('p') => text.push_str(if hour < 12 { "AM" } else { "PM" }),
            Some('M') => text.push_str(&format!("{minute:02}")),
            Some('S') => text.push_str(&format!("{second:02}")),
            Some('%') => text.push('%'),
            Some(other) => text.extend(['%', other]),
            None => text.push('%'),
        }
    }
    text
}

/// Year, month from 1, day from 1, and day of the year from 1.
fn date(days_since_1970: u64) -> (u64, usize, u64, u64) {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    // The calendar repeats every 400 years, which are 146,097 days.
    let mut year = 1970 + days_since_1970 / 146_097 * 400;
    let mut left = days_since_1970 % 146_097;
    while left >= 365 + u64::from(leap(year)) {
        left -= 365 + u64::from(leap(year));
        year += 1;
    }
    let day_of_year = left + 1;
    let mut month = 0;
    for length in [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        month += 1;
        if left < length {
            break;
        }
        left -= length;
    }
    (year, month, left + 1, day_of_year)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_have_their_dates() {
        assert_eq!(format("%A %d %B %Y %H:%M:%S", 0), "Thursday 01 January 1970 00:00:00");
        assert_eq!(format("%a %d %b %y, %j %I%p", 951_827_696), "Tue 29 Feb 00, 060 12PM");
        assert_eq!(format("%Y-%m-%d %q %% %", 1_735_689_599), "2024-12-31 %q % %");
        assert_eq!(format("%Y-%m-%d", 4_107_542_400), "2100-03-01");
        assert_eq!(format("%d", u64::MAX).len(), 2);
    }
}
