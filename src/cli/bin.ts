#!/usr/bin/env node
/** The executable `lockstep`. */
import { launch } from "./launch.js";

launch();
