#!/usr/bin/env node
/** The program. */
import { launch } from "./launch.js";

launch();
