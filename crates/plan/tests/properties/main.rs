//! Properties of every free list and every plan.

mod exact;
mod free_list;
mod model;
mod plans;
