//! The tables, as Markdown.

use std::fmt::Write as _;

use anyhow::Result;

use crate::machine;
use crate::measure::{Effort, Figure};
use crate::report::{cell, count};

use super::app::App;
use super::load::Loads;
use super::tiers::{Point, Tiers};

/// Formats all measurements, with the notes needed to read them.
pub(crate) fn tables(
    tiers: &[Point],
    calls: &[Figure],
    instructions: &[Result<f64>],
    loads: &Loads,
    effort: Effort,
) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = write_tiers(&mut text, tiers, effort);
    let _ = write_calls(&mut text, calls, instructions);
    let _ = write_loads(&mut text, loads);
    text
}

fn write_tiers(text: &mut String, points: &[Point], effort: Effort) -> std::fmt::Result {
    writeln!(
        text,
        "Admission in process, one thread, all admitted, 4,096 organizations. {}. Median \
         [min .. max] of {} runs, interleaved.\n",
        machine::processor().as_deref().unwrap_or("An unknown processor"),
        effort.runs
    )?;
    writeln!(text, "| clients | tiers | ns per check |\n| ---: | --- | --- |")?;
    for point in points {
        for (tiers, figure) in Tiers::ALL.iter().zip(&point.figures) {
            writeln!(text, "| {} | {} | {} |", count(point.clients), tiers.name(), cell(figure))?;
        }
    }
    Ok(())
}

fn write_calls(
    text: &mut String,
    calls: &[Figure],
    instructions: &[Result<f64>],
) -> std::fmt::Result {
    writeln!(text, "\nAn axum app called in process, one address, all admitted.\n")?;
    writeln!(text, "| app | ns per call | added | instructions per call | added |")?;
    writeln!(text, "| --- | --- | ---: | ---: | ---: |")?;
    let bare_counted = instructions.first().and_then(|bare| bare.as_ref().ok()).copied();
    let bare = calls.first().map_or(f64::NAN, |bare| bare.median);
    for ((app, figure), counted) in App::ALL.iter().zip(calls).zip(instructions) {
        let (counted, added) = match (counted, bare_counted) {
            (Ok(counted), Some(bare)) => {
                (format!("{counted:.0}"), format!("{:.0}", counted - bare))
            }
            (Ok(counted), None) => (format!("{counted:.0}"), "unknown".to_owned()),
            (Err(error), _) => (format!("not counted: {error}"), "unknown".to_owned()),
        };
        let (name, nanos) = (app.name(), cell(figure));
        writeln!(text, "| {name} | {nanos} | {:.0} | {counted} | {added} |", figure.median - bare)?;
    }
    Ok(())
}

fn write_loads(text: &mut String, loads: &Loads) -> std::fmt::Result {
    let place = if loads.apart {
        "the app on one core, those who ask it on another"
    } else {
        "the app and those who ask it on whatever core is free"
    };
    writeln!(
        text,
        "\nThe same behind a socket, {place}: 32 connections that ask one request after the \
         other.\n"
    )?;
    writeln!(
        text,
        "| app | requests/s | of bare | p50, us | p99, us | processor time, ns per request | added |"
    )?;
    writeln!(text, "| --- | --- | ---: | --- | --- | --- | ---: |")?;
    let Some(bare) = loads.apps.first() else { return Ok(()) };
    for (app, load) in App::ALL.iter().zip(&loads.apps) {
        let (name, rate) = (app.name(), cell(&load.rate));
        writeln!(
            text,
            "| {name} | {rate} | {:.3} | {} | {} | {} | {:.0} |",
            load.rate.median / bare.rate.median,
            cell(&load.p50),
            cell(&load.p99),
            cell(&load.processor),
            load.processor.median - bare.processor.median
        )?;
    }
    Ok(())
}
