//! Reading and writing files.

mod by_hand;
mod damage;
mod reading;
mod round_trip;
mod split;
mod support;
mod values;
mod writing;
